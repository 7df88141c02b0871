"""Failures of the contract suite show their values; and its harness on the real Kafka."""

import pytest

from echelon.local import KafkaServer

pytest.register_assert_rewrite("echelon.testing.contract")

from tests.brokers.harnesses import KafkaHarness  # noqa: E402  (the suite is imported after the registration)


@pytest.fixture(scope="session")
def kafka_harness(kafka_server: KafkaServer) -> KafkaHarness:
    return KafkaHarness(kafka_server)
