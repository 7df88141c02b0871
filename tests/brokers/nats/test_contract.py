"""The contract suite on a real nats-server, with each way of partitioning."""

from collections.abc import Iterator

import pytest

from echelon.group.config import Partitioning
from echelon.local import NatsServer
from echelon.testing.contract import BrokerContract, Harness
from tests.brokers.nats.harness import NatsHarness
from tests.certificates import Certificates
from tests.nats_security import NatsSecurity, nats_security
from tests.servers import skip_if_missing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server of its own: the suite stops and starts it."""
    yield from started(NatsServer(tmp_path_factory.mktemp("nats")))


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> NatsSecurity:
    return nats_security("mutual-tls", tmp_path_factory.mktemp("security"), certificates)


@pytest.fixture(scope="module")
def secure_server(tmp_path_factory: pytest.TempPathFactory, security: NatsSecurity) -> Iterator[NatsServer]:
    yield from started(NatsServer(tmp_path_factory.mktemp("nats"), config=security.config))


def started(server: NatsServer) -> Iterator[NatsServer]:
    with skip_if_missing():
        server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("partitioning", ["token", "derived", "computed"])
class TestNats(BrokerContract):
    @pytest.fixture
    def harness(self, server: NatsServer, partitioning: Partitioning) -> Harness:
        return NatsHarness(server, partitioning)


class TestNatsWithCertificates(BrokerContract):
    @pytest.fixture
    def harness(self, secure_server: NatsServer, security: NatsSecurity) -> Harness:
        return NatsHarness(secure_server, "computed", security)
