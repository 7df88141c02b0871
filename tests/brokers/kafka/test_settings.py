"""From URL, options and environment to librdkafka's properties."""

import pytest
from confluent_kafka import Consumer, Producer

from echelon.brokers.kafka.settings import Settings
from echelon.errors import InvalidConfig


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("SASL_MECHANISM", "USER", "PASSWORD", "TLS", "CA", "CERT", "KEY", "KEY_PASSWORD", "TIMEOUT"):
        monkeypatch.delenv(f"ECHELON_KAFKA_{option}", raising=False)


def test_a_plain_url() -> None:
    settings = Settings("kafka://one:9092,two:9093", {})
    assert settings.servers == "one:9092,two:9093"
    assert settings.properties["bootstrap.servers"] == "one:9092,two:9093"
    assert settings.properties["security.protocol"] == "PLAINTEXT"
    assert "sasl.mechanism" not in settings.properties


def test_credentials_in_the_url_are_decoded_and_are_not_shown() -> None:
    settings = Settings("kafka://al%40ice:p%2Fw%3A@one:9092", {})
    assert settings.properties["sasl.username"] == "al@ice"
    assert settings.properties["sasl.password"] == "p/w:"
    assert settings.properties["security.protocol"] == "SASL_PLAINTEXT"
    assert settings.properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert settings.servers == "one:9092"


def test_options_win_over_the_url_and_the_url_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_KAFKA_USER", "env")
    monkeypatch.setenv("ECHELON_KAFKA_PASSWORD", "env")
    monkeypatch.setenv("ECHELON_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("ECHELON_KAFKA_TLS", "true")
    found = Settings("kafka://url:url@one:9092", {"user": "option"}).properties
    assert (found["sasl.username"], found["sasl.password"], found["sasl.mechanism"]) == ("option", "url", "PLAIN")
    assert found["security.protocol"] == "SASL_SSL"
    assert Settings("kafka://one:9092", {"tls": False}).properties["security.protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_a_certificate_means_tls(option: str) -> None:
    assert Settings("kafka://one:9092", {option: "file.pem"}).properties["security.protocol"] == "SSL"


def test_any_property_of_librdkafka_passes_but_not_what_order_and_loss_hang_on() -> None:
    settings = Settings("kafka://one:9092", {"kafka.client.rack": "b", "kafka.acks": "0", "kafka.fetch.min.bytes": 5})
    assert settings.consumer("group")["client.rack"] == "b"
    assert settings.consumer("group")["fetch.min.bytes"] == "5"
    assert settings.producer()["acks"] == "all"


@pytest.mark.parametrize("options", [{"timeout": 3600}, {"timeout": 0.1}, {"kafka.message.max.bytes": 100_000_000}])
def test_librdkafka_takes_what_may_be_asked_for(options: dict[str, object]) -> None:
    settings = Settings("kafka://one:9092", options)
    Consumer(settings.consumer("group")).close()
    Producer(settings.producer())


def test_records_are_read_committed_unless_told_otherwise() -> None:
    assert Settings("kafka://one:9092", {}).consumer("group")["isolation.level"] == "read_committed"
    settings = Settings("kafka://one:9092", {"kafka.isolation.level": "read_uncommitted"})
    assert settings.consumer("group")["isolation.level"] == "read_uncommitted"
    assert settings.reads_uncommitted


@pytest.mark.parametrize(
    "url",
    [
        *("kafka://", "kafka://host", "kafka://:9092", "kafka://u:secret@host", "http://h:1", "kafka://h:1?a=b"),
        *("kafka://h:99999", "kafka://h:0", "kafka://g:1,h:65536"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Settings(url, {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"usr": "x"}, *({"timeout": each} for each in ("soon", 0, "nan", "inf"))])
def test_options_that_are_none_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(options))):
        Settings("kafka://one:9092", options)
