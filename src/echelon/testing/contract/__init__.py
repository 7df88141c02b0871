"""What every broker must do, as a suite of pytest tests that runs unchanged on all of them.

To test a broker of your own, fulfil `Harness` for it and subclass the suite in a test module:

    class TestMyBroker(BrokerContract):
        @pytest.fixture
        def harness(self) -> Harness:
            return MyHarness()

Each test uses streams and groups with names of its own, so one server serves them all, one test after the
other. Call `pytest.register_assert_rewrite("echelon.testing.contract")` before you import it, and failures
will show their values.
"""

from echelon.testing.contract.data import DataContract
from echelon.testing.contract.following import FollowContract
from echelon.testing.contract.groups import GroupContract
from echelon.testing.contract.harness import Harness, Sent
from echelon.testing.contract.log import LogContract
from echelon.testing.contract.ranges import RangeContract
from echelon.testing.contract.tails import TailContract
from echelon.testing.contract.writing import WriterContract

__all__ = ["BrokerContract", "Harness", "Sent"]


class BrokerContract(
    LogContract, FollowContract, GroupContract, DataContract, RangeContract, TailContract, WriterContract
):
    """All of it. The tests take a fixture `harness`, which the subclass gives."""
