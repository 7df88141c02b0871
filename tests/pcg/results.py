"""What exactly-once members have written into PostgreSQL."""

from collections import defaultdict

import psycopg

from tests.pcg.stage import Stage
from tests.postgres_server import PostgresServer


def results(server: PostgresServer, stream: str) -> dict[str, list[tuple[int, str]]]:
    """The results of each key, in the order in which they were written, and who wrote them."""
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    with psycopg.connect(server.conninfo) as connection:
        query = "SELECT key, number, name FROM results WHERE stream = %s ORDER BY id"
        for key, number, name in connection.execute(query, (stream,)):
            found[key].append((number, name))
    return dict(found)


def prepared(server: PostgresServer) -> int:
    with psycopg.connect(server.conninfo) as connection:
        row = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
        assert row is not None
        return int(row[0])


async def until_all_written(stage: Stage, server: PostgresServer, seconds: float = 20) -> None:
    def is_so() -> bool:
        found = results(server, stage.stream)
        return all(len({n for n, _ in found.get(key, [])}) == count for key, count in stage.sent.items())

    await stage.until(is_so, seconds)


def check_once(stage: Stage, server: PostgresServer) -> None:
    found = results(server, stage.stream)
    for key, count in stage.sent.items():
        assert [number for number, _ in found[key]] == list(range(count)), (key, found[key])
