"""From a URL to a broker."""

import subprocess
import sys

import pytest

from echelon.brokers.connect import open_broker
from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.memory import MemoryBroker
from echelon.errors import InvalidConfig, MissingComponent


def test_the_scheme_chooses_the_broker() -> None:
    assert isinstance(open_broker("memory://test"), MemoryBroker)
    assert isinstance(open_broker("kafka://localhost:9092", timeout=3), KafkaBroker)


def test_nats_urls_choose_nats() -> None:
    from echelon.brokers.nats import NatsBroker

    for scheme in ("nats", "tls"):
        assert isinstance(open_broker(f"{scheme}://localhost:4222"), NatsBroker)


@pytest.mark.parametrize("url", ["", "orders", "redis://user:secret@host", "kafka:/host:1"])
def test_a_url_of_no_broker_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_broker(url)
    assert "secret" not in str(caught.value)


def test_unknown_options_are_refused() -> None:
    for url in ("memory://test", "kafka://localhost:9092"):
        with pytest.raises(InvalidConfig, match="colour"):
            open_broker(url, colour="red")


def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for module in [name for name in sys.modules if name.startswith("echelon.brokers.kafka")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingComponent, match=r"pip install 'echelon\[kafka\]'"):
        open_broker("kafka://localhost:9092")


def test_no_client_library_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys; from echelon.brokers.connect import open_broker; open_broker('memory://x');"
        "sys.exit(any(name in sys.modules for name in ('nats', 'confluent_kafka', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
