"""A real nats-server and a real PostgreSQL, which prepares transactions, for these tests."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.postgres_server import PostgresServer
from tests.servers import nats_server, nats_servers, skip_if_missing

__all__ = ["nats_server", "nats_servers"]


@pytest.fixture(scope="session")
def preparing_postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole session, with a table for results."""
    with TemporaryDirectory(prefix="echelon-postgres-") as folder:
        with skip_if_missing():
            server = PostgresServer(Path(folder) / "data")
            server.start()
        _let_it_prepare(server)
        yield server
        server.stop()


def _let_it_prepare(server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_prepared_transactions = 20")
        connection.execute("CREATE TABLE results (id bigserial, stream text, key text, number int, name text)")
    server.kill()
    server.start()
