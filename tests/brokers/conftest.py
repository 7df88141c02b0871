"""The harness of the contract suite on the real Kafka."""

import pytest

from echelon.local import KafkaServer
from tests.brokers.harnesses import KafkaHarness


@pytest.fixture(scope="session")
def kafka_harness(kafka_server: KafkaServer) -> KafkaHarness:
    return KafkaHarness(kafka_server)
