"""Each way of proving to a real Kafka who one is, and what happens when it does not suffice."""

import asyncio

import pytest

from echelon.brokers.kafka import KafkaBroker
from echelon.errors import Denied, Unreachable
from echelon.testing.contract.harness import name, take
from tests.kafka_security import KAFKA_WAYS, KafkaSecurity
from tests.servers import SecureKafka


def options(security: KafkaSecurity) -> dict[str, object]:
    return {
        "sasl_mechanism": security.mechanism,
        "user": security.user,
        "password": security.password,
        "tls": security.protocol.endswith("SSL"),
        "ca": security.ca,
        "cert": security.certificate,
        "key": security.key,
    }


async def use(broker: KafkaBroker) -> None:
    """Go through every kind of client that a broker has: administration, producer, consumers."""
    async with broker:
        log = await broker.create_log(name("group"))
        sequences = [await log.append(f"{n}".encode()) for n in range(3)]
        entries = await log.read(sequences[0], sequences[-1] + 1)
        assert [entry.data for entry in entries] == [b"0", b"1", b"2"]
        assert await take(log.follow(sequences[0]), 3) == entries


@pytest.mark.parametrize("way", KAFKA_WAYS)
def test_a_broker_is_used_with(way: str, secure_kafka: SecureKafka) -> None:
    server, security = secure_kafka(way)
    asyncio.run(use(KafkaBroker(server.url, **options(security))))


def test_credentials_come_from_the_url(secure_kafka: SecureKafka) -> None:
    server, security = secure_kafka("scram-sha-512")
    url = server.url.replace("kafka://", f"kafka://{security.user}:{security.password}@")
    asyncio.run(use(KafkaBroker(url)))


def test_credentials_come_from_the_environment(secure_kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    server, security = secure_kafka("plain-tls")
    for option, value in options(security).items():
        monkeypatch.setenv(f"ECHELON_KAFKA_{option.upper()}", str(value or ""))
    asyncio.run(use(KafkaBroker(server.url)))


@pytest.mark.parametrize("way", ["plain", "scram-sha-256", "scram-sha-512-tls"])
def test_a_wrong_password_is_denied_and_not_shown(way: str, secure_kafka: SecureKafka) -> None:
    server, security = secure_kafka(way)
    with pytest.raises(Denied) as caught:
        asyncio.run(use(KafkaBroker(server.url, timeout=2, **{**options(security), "password": "guessed"})))
    assert "guessed" not in str(caught.value)


def test_no_credentials_where_some_are_wanted(secure_kafka: SecureKafka) -> None:
    server, _ = secure_kafka("plain")
    with pytest.raises((Denied, Unreachable), match="credentials"):
        asyncio.run(use(KafkaBroker(server.url, timeout=2)))


def test_a_server_whose_certificate_is_not_trusted_is_refused(secure_kafka: SecureKafka) -> None:
    server, _ = secure_kafka("tls")
    with pytest.raises(Denied, match="certificate"):
        asyncio.run(use(KafkaBroker(server.url, tls=True, timeout=2)))


def test_a_client_without_the_certificate_that_is_wanted_is_denied(secure_kafka: SecureKafka) -> None:
    server, security = secure_kafka("mutual-tls")
    with pytest.raises((Denied, Unreachable)):
        asyncio.run(use(KafkaBroker(server.url, ca=security.ca, timeout=2)))
