"""The contract suite on the brokers that Echelon has; that on NATS is in `nats/test_contract.py`.

On Kafka it takes a minute for each way of proving who one is. So with most ways only its part on following a log runs,
through restarts too; ECHELON_TEST_WAYS=all runs the whole suite with all of them.
"""

import os

import pytest

from echelon.testing.contract import BrokerContract, Harness
from echelon.testing.contract.following import FollowContract
from tests.brokers.harnesses import KafkaHarness, MemoryHarness
from tests.kafka_security import KAFKA_WAYS
from tests.servers import SecureKafka

_WHOLE = KAFKA_WAYS if os.environ.get("ECHELON_TEST_WAYS") == "all" else ("scram-sha-512-tls",)
_PARTLY = [way for way in KAFKA_WAYS if way not in _WHOLE]


class TestMemory(BrokerContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness("contract")


class TestKafka(BrokerContract):
    @pytest.fixture
    def harness(self, kafka_harness: KafkaHarness) -> Harness:
        return kafka_harness


@pytest.fixture(scope="module")
def secure_harness(request: pytest.FixtureRequest, secure_kafka: SecureKafka) -> KafkaHarness:
    return KafkaHarness(*secure_kafka(request.param))


@pytest.mark.parametrize("secure_harness", _WHOLE, indirect=True)
class TestSecureKafka(BrokerContract):
    @pytest.fixture
    def harness(self, secure_harness: KafkaHarness) -> Harness:
        return secure_harness


@pytest.mark.parametrize("secure_harness", _PARTLY, indirect=True)
class TestSecureKafkaFollowing(FollowContract):
    __test__ = bool(_PARTLY)  # Without a way its tests would count as skipped.

    @pytest.fixture
    def harness(self, secure_harness: KafkaHarness) -> Harness:
        return secure_harness
