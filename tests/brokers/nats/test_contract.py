"""The contract suite on a real nats-server, with each way of partitioning."""

from collections.abc import Iterator

import pytest

from echelon.group.config import Partitioning
from echelon.local import NatsServer
from echelon.testing.contract import BrokerContract, Harness
from tests.brokers.nats.harness import NatsHarness
from tests.servers import skip_if_missing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server of its own: the suite stops and starts it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    with skip_if_missing():
        server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("partitioning", ["token", "derived", "computed"])
class TestNats(BrokerContract):
    @pytest.fixture
    def harness(self, server: NatsServer, partitioning: Partitioning) -> Harness:
        return NatsHarness(server, partitioning)
