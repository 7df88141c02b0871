"""The two real brokers, and one group at work on each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.place import Place


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No context, URL or server of the user's is ever used."""
    for name in ("ECHELON_URL", "ECHELON_CONTEXT", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session", params=["nats"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A real NATS JetStream; in tests `ON_BOTH`, also a real Kafka."""
    folder = tmp_path_factory.mktemp("place")
    if request.param == "nats":
        from tests.brokers.nats.harness import NatsHarness

        server = request.getfixturevalue("nats_server")
        found = Place(NatsHarness(server, "derived"), server.url, folder)
    else:
        from tests.brokers.harnesses import KafkaHarness

        kafka = request.getfixturevalue("kafka_server")
        found = Place(KafkaHarness(kafka), kafka.url, folder)
    yield found
    found.end()


@pytest.fixture(scope="session")
def crew(place: Place) -> str:
    """A group with the seats m1 and m2, held by web-1 and web-2, and spare, which stands by; 40 messages are done."""
    stream = place.stream()
    group = place.group(stream, "--members", "m1,m2")
    place.launch(group, "web-1", "m1")
    place.launch(group, "web-2", "m2")
    place.until_seated(group, m1="web-1", m2="web-2")
    place.launch(group, "spare")
    place.publish(stream, 40)
    place.until(lambda: place.one("info", group)["lag"] == 0 and place.one("info", group)["standby"] == 1)
    return group


@pytest.fixture(scope="session")
def quiet(place: Place) -> str:
    """A group with the seat m1, in which nobody is; 40 messages wait. Leave it as it is."""
    stream = place.stream()
    group = place.group(stream, "--members", "m1")
    place.publish(stream, 40)
    # A derived stream takes a moment to get them.
    place.until(lambda: place.one("info", group)["lag"] == 40)
    return group
