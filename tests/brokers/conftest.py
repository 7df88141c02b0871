"""Real servers for these tests, and failures of the contract suite that show their values."""

import pytest

from echelon.local import KafkaServer
from tests.servers import (
    certificates,
    kafka_server,
    kafka_servers,
    nats_server,
    nats_servers,
    secure_kafka,
    secure_nats,
)

pytest.register_assert_rewrite("echelon.testing.contract")

from tests.brokers.harnesses import KafkaHarness  # noqa: E402  (the suite is imported after the registration)

__all__ = [
    "certificates",
    "kafka_server",
    "kafka_servers",
    "nats_server",
    "nats_servers",
    "secure_kafka",
    "secure_nats",
]


@pytest.fixture(scope="session")
def kafka_harness(kafka_server: KafkaServer) -> KafkaHarness:
    return KafkaHarness(kafka_server)
