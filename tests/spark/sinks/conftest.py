"""The real places for batches, as fixtures."""

import asyncio
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.postgres_server import PostgresServer
from tests.spark.sinks.harnesses import KINDS, BatchHarness


@pytest.fixture(params=list(KINDS))
def harness(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> BatchHarness:
    """Each kind of place for results, empty."""
    return new_harness(request, request.param, spark, tmp_path)


@pytest.fixture(params=[kind for kind, harness in KINDS.items() if harness.takes_back])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> BatchHarness:
    """Each kind that can take results back, empty."""
    return new_harness(request, request.param, spark, tmp_path)


def new_harness(request: pytest.FixtureRequest, kind: str, spark: SparkSession, folder: Path) -> BatchHarness:
    """An empty place, on the session's server if it needs one."""
    if kind == "delta":
        address = str(folder / "table")
    else:
        server = request.getfixturevalue(f"{kind}_server")
        address = server.conninfo if isinstance(server, PostgresServer) else server.url
    made = KINDS[kind](spark, address, f"s{uuid.uuid4().hex[:12]}")
    asyncio.run(made.prepare())
    return made
