"""The real places for results, as fixtures."""

import asyncio
import uuid
from pathlib import Path

import pytest

from tests.members.sinks.harnesses import KINDS, SinkHarness, make_harness
from tests.postgres_server import PostgresServer


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
