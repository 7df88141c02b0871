"""The contract suite on a real nats-server: each way of partitioning, and each way of proving who one is."""

from collections.abc import Iterator
from typing import cast

import pytest

from echelon.group.config import Partitioning
from echelon.local import NatsServer
from echelon.testing.contract import BrokerContract, Harness
from tests.brokers.nats.harness import NatsHarness
from tests.certificates import Certificates
from tests.nats_security import NATS_WAYS, nats_security
from tests.servers import skip_if_missing

_PARTITIONINGS = ("token", "derived", "computed")
_PAIRS = [(_PARTITIONINGS[number % 3], way) for number, way in enumerate((None, *NATS_WAYS))]


@pytest.fixture(scope="module", params=_PAIRS, ids=lambda pair: "-".join(filter(None, pair)))
def suite_harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[NatsHarness]:
    """A server of its own: the suite stops and starts it."""
    partitioning, way = cast("tuple[Partitioning, str | None]", request.param)
    security = nats_security(way, tmp_path_factory.mktemp("security"), certificates) if way else None
    server = NatsServer(tmp_path_factory.mktemp("nats"), config=security.config if security else "")
    with skip_if_missing():
        server.start()
    yield NatsHarness(server, partitioning, security)
    server.kill()


class TestNats(BrokerContract):
    @pytest.fixture
    def harness(self, suite_harness: NatsHarness) -> Harness:
        return suite_harness
