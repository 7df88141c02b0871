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


class TestKafkaWithPasswordAndTls(BrokerContract):
    @pytest.fixture(scope="class")
    def harness(self, secure_kafka: SecureKafka) -> Harness:
        return KafkaHarness(*secure_kafka("scram-sha-512-tls"))
