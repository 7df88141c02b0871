"""The contract suite on the brokers that Echelon has."""

import pytest

from echelon.testing.contract import BrokerContract, Harness
from tests.brokers.harnesses import KafkaHarness, MemoryHarness
from tests.servers import SecureKafka


class TestMemory(BrokerContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness("contract")


class TestKafka(BrokerContract):
    @pytest.fixture
    def harness(self, kafka_harness: KafkaHarness) -> Harness:
        return kafka_harness


@pytest.fixture(scope="module")
def secure_harness(secure_kafka: SecureKafka) -> KafkaHarness:
    return KafkaHarness(*secure_kafka("scram-sha-512-tls"))


class TestKafkaWithPasswordAndTls(BrokerContract):
    @pytest.fixture
    def harness(self, secure_harness: KafkaHarness) -> Harness:
        return secure_harness
