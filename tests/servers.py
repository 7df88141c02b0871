"""Real servers for tests, as pytest fixtures. A server that cannot be had skips the test, with the reason."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from echelon.errors import MissingComponent
from echelon.local import KafkaServer, NatsServer, Server
from tests.certificates import Certificates, make_certificates
from tests.kafka_security import FORMAT_OPTIONS, KafkaSecurity, kafka_security
from tests.nats_security import NatsSecurity, nats_security
from tests.postgres_server import PostgresServer

S = TypeVar("S", bound=Server)


class NatsServers(Protocol):
    def __call__(self, *, config: str = "", port: int | None = None) -> NatsServer: ...


class KafkaServers(Protocol):
    def __call__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        port: int | None = None,
    ) -> KafkaServer: ...


class SecureNats(Protocol):
    def __call__(self, way: str) -> tuple[NatsServer, NatsSecurity]: ...


class SecureKafka(Protocol):
    def __call__(self, way: str) -> tuple[KafkaServer, KafkaSecurity]: ...


@contextmanager
def skip_if_missing() -> Iterator[None]:
    """Skip the test if something in the block is not on this machine."""
    try:
        yield
    except MissingComponent as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One nats-server for the whole session. Use names of your own on it, and leave it running."""
    with ExitStack() as stack:
        yield _start(NatsServer(tmp_path_factory.mktemp("nats")), stack)


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One Kafka for the whole session. Use names of your own on it, and leave it running."""
    with ExitStack() as stack:
        yield _start(KafkaServer(tmp_path_factory.mktemp("kafka")), stack)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole session. Use schemas of your own on it, and leave it running."""
    # Not in pytest's own folder: PostgreSQL does not run as root, and pytest keeps other users out of that.
    with tempfile.TemporaryDirectory(prefix="echelon-postgres-") as folder:
        with skip_if_missing():
            server = PostgresServer(Path(folder) / "data")
        server.start()
        yield server
        server.stop()


@pytest.fixture
def nats_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    """Starts nats-servers of the test's own: `nats_servers(config="...")`. They are gone when the test ends."""
    with ExitStack() as stack:

        def start(*, config: str = "", port: int | None = None) -> NatsServer:
            return _start(NatsServer(tmp_path_factory.mktemp("nats"), port=port, config=config), stack)

        yield start


@pytest.fixture
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """Starts Kafkas of the test's own: `kafka_servers(properties={...})`. They are gone when the test ends."""
    with ExitStack() as stack:

        def start(
            *,
            properties: Mapping[str, str] | None = None,
            format_options: Sequence[str] = (),
            port: int | None = None,
        ) -> KafkaServer:
            data = tmp_path_factory.mktemp("kafka")
            return _start(KafkaServer(data, port=port, properties=properties, format_options=format_options), stack)

        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and what it signed for the servers and for a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secure_nats(nats_servers: NatsServers, certificates: Certificates, tmp_path: Path) -> SecureNats:
    """Starts a nats-server that wants one of `NATS_WAYS`, and says what a client has to show."""

    def start(way: str) -> tuple[NatsServer, NatsSecurity]:
        security = nats_security(way, tmp_path, certificates)
        return nats_servers(config=security.config), security

    return start


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecureKafka]:
    """Finds a Kafka that wants one of `KAFKA_WAYS`, and what a client has to show. It stays for the session."""
    servers: list[KafkaServer] = []
    with ExitStack() as stack:

        def find(way: str) -> tuple[KafkaServer, KafkaSecurity]:
            security = kafka_security(way, certificates)
            for server in servers:
                if server.properties == security.properties:
                    return server, security
            data = tmp_path_factory.mktemp("kafka")
            new = KafkaServer(data, properties=security.properties, format_options=FORMAT_OPTIONS)
            servers.append(_start(new, stack))
            return new, security

        yield find


def _start(server: S, stack: ExitStack) -> S:
    stack.callback(server.kill)
    with skip_if_missing():
        server.start()
    return server
