"""The real places for results, as fixtures."""

import asyncio
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.members.sinks.harnesses import KINDS, SinkHarness, make_harness
from tests.members.sinks.postgres_server import PostgresServer
from tests.servers import kafka_server, nats_server, nats_servers, skip_if_missing

__all__ = ["kafka_server", "nats_server", "nats_servers"]


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


@pytest.fixture(params=list(KINDS))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> SinkHarness:
    """Each kind of place for results, empty."""
    return new_harness(request, request.param, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> SinkHarness:
    """Each kind that can take results back, empty."""
    return new_harness(request, request.param, tmp_path)


def new_harness(request: pytest.FixtureRequest, kind: str, folder: Path) -> SinkHarness:
    """An empty place on the session's server."""
    if kind == "sqlite":
        address = str(folder / "results.db")
    else:
        server = request.getfixturevalue(f"{kind.partition('-')[0]}_server")
        address = server.conninfo if isinstance(server, PostgresServer) else server.url
    made = make_harness(kind, address, f"r{uuid.uuid4().hex[:12]}")
    asyncio.run(made.prepare())
    return made
