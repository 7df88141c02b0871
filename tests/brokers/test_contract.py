"""The contract suite on the brokers that Echelon has."""

import pytest

from echelon.testing.contract import BrokerContract, Harness
from tests.brokers.harnesses import KafkaHarness, MemoryHarness


class TestMemory(BrokerContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness("contract")


class TestKafka(BrokerContract):
    @pytest.fixture
    def harness(self, kafka_harness: KafkaHarness) -> Harness:
        return kafka_harness
