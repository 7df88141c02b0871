"""Exactly once into PostgreSQL: the results and the position are in one database, and change in one transaction."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from math import ceil
from typing import Any, Final, Self, TypeVar

from echelon.errors import Denied, EchelonError, InvalidConfig, MissingComponent, StorageFull, Unreachable
from echelon.group.delivery import SinkState
from echelon.members.handlers import check_plain
from echelon.members.sinks.base import Batch, Place
from echelon.members.sinks.kept import Kept, commit_kept, falls_back, not_reversible, open_kept

try:
    import psycopg
    from psycopg import sql
except ModuleNotFoundError as missing:
    raise MissingComponent("psycopg is not installed", remedy="Run: pip install 'echelon[postgres]'") from missing

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]

TakeBack = Callable[[Cursor, str, int], object]
"""Deletes the results of a partition from a position on: `take_back(cursor, partition, position)`."""

# Held while the table is made: CREATE TABLE IF NOT EXISTS alone fails if two do it at once. Any number will do.
_MAKING: Final = 7_262_018_443
_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS {table} (
        group_name text NOT NULL, partition text NOT NULL, identity text NOT NULL, made bigint NOT NULL,
        fence bigint NOT NULL, committed bigint NOT NULL, position bigint,
        PRIMARY KEY (group_name, partition)
    )
"""
# A row to lock. Without a position it counts as none.
_CLAIM: Final = """
    INSERT INTO {table} VALUES (%s, %s, '', 0, 0, 0, NULL) ON CONFLICT (group_name, partition) DO NOTHING
"""
_READ: Final = """
    SELECT identity, made, fence, committed, position FROM {table}
    WHERE group_name = %s AND partition = %s FOR UPDATE
"""
_WRITE: Final = """
    UPDATE {table} SET identity = %s, made = %s, fence = %s, committed = %s, position = %s
    WHERE group_name = %s AND partition = %s
"""
# An owner that is frozen in a transaction would keep its locks, and its successor waiting. Who has chosen another
# limit, for the role or the database, keeps that.
_LIMIT: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '60s', false)
    WHERE current_setting('idle_in_transaction_session_timeout') = '0'
"""
# libpq tells why it was not let in by words alone.
_REFUSED: Final = re.compile("authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist")


class PostgresSink:
    """A sink in the PostgreSQL database at `conninfo`; positions are in `table` (`name` or `schema.name`).

    Handlers get a psycopg cursor and write with it, in any thread (a coroutine function blocks its event loop
    meanwhile); they must not end the transaction. Each transaction that is under way has a connection of its own,
    which is kept for the next. A transaction in which a minute passes between two statements is ended by the server
    (`idle_in_transaction_session_timeout`, unless the database sets another). What the sink itself asks of the server
    may take `timeout` seconds; after that, and when the connection is lost, Unreachable is raised.

    `take_back(cursor, partition, position)` deletes a partition's results from a position on, for resets. It runs
    in a thread. Without it, a reset to an earlier position has to keep the output.
    """

    def __init__(
        self,
        conninfo: str,
        take_back: TakeBack | None = None,
        *,
        table: str = "echelon_positions",
        timeout: float = 10.0,
    ) -> None:
        self._conninfo = conninfo
        self._where = _server(conninfo)
        self._take_back = take_back
        self._table = sql.Identifier(*table.split("."))
        self._read_query, self._write_query = (sql.SQL(each).format(table=self._table) for each in (_READ, _WRITE))
        self._timeout = timeout
        self._idle: list[_Session] = []
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Connect, and make the table if it is not there. Raises Denied, Unreachable."""
        async with self._session() as session:
            await session.run(partial(self._make_table, session))
        self._is_open = True
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._is_open = False
        self._close_idle()

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `Sink.open` describes it."""
        async with self._session() as session:
            work = partial(self._open, session, place, epoch=epoch, reset=reset, position=position, keep=keep)
            return await session.run(work)

    @asynccontextmanager
    async def transaction(self, place: Place, *, epoch: int, begin: int) -> AsyncGenerator[Batch[Cursor], None]:
        """Begin a batch. If the connection is lost, leaving the batch raises Unreachable, not the handler's error."""
        async with self._session() as session:
            commit = partial(self._commit, session, place, epoch, begin)
            with session.connection.cursor() as cursor:
                yield Batch(cursor, lambda end: session.run(partial(commit, end)))

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator["_Session", None]:
        """A connection for one transaction. What was not committed is undone."""
        session = self._idle.pop() if self._idle else _Session(self._conninfo, self._where, self._timeout)
        try:
            await session.run(session.connect)
            yield session
        except psycopg.OperationalError as error:
            raise _explain(error, self._where, is_lost=session.is_lost) from error
        finally:
            await self._give_back(session)

    async def _give_back(self, session: "_Session") -> None:
        try:
            await session.run(session.roll_back)
        except (psycopg.Error, EchelonError):
            session.close()
            self._close_idle()  # They are as old, or older.
        except BaseException:
            session.hang_up()
            session.close()
            raise
        else:
            self._idle.append(session)
            if not self._is_open:
                self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _make_table(self, session: "_Session") -> None:
        connection = session.connection
        [[there]] = connection.execute("SELECT to_regclass(%s)", (self._table.as_string(connection),))
        if there is None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            connection.execute(sql.SQL(_CREATE).format(table=self._table))
            connection.commit()

    def _open(
        self, session: "_Session", place: Place, *, epoch: int, reset: int, position: int, keep: bool
    ) -> int | None:
        connection = session.connection
        with connection.cursor() as cursor:
            # The row that is waited for must then be seen, whatever the database's default.
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(sql.SQL(_CLAIM).format(table=self._table), (place.group, place.partition))
            before = self._read(connection, place)
            after = open_kept(before, place, epoch=epoch, reset=reset, position=position)
            if after is None:
                return None
            if falls_back(before, after) and not keep:
                if self._take_back is None:
                    raise not_reversible(place, after.position)
                check_plain("take_back", self._take_back(cursor, place.partition, after.position))
            self._write(connection, place, after)
        connection.commit()
        return after.position

    def _commit(self, session: "_Session", place: Place, epoch: int, begin: int, end: int) -> bool:
        connection = session.connection
        try:
            after = commit_kept(self._read(connection, place), place, epoch=epoch, begin=begin, end=end)
            if after is not None:
                self._write(connection, place, after)
                connection.commit()
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return False
        return after is not None

    def _read(self, connection: Connection, place: Place) -> Kept | None:
        row = connection.execute(self._read_query, (place.group, place.partition)).fetchone()
        return None if row is None or row[4] is None else Kept(row[0], row[1], SinkState(*row[2:]))

    def _write(self, connection: Connection, place: Place, kept: Kept) -> None:
        state = kept.state
        numbers = (kept.identity, kept.made, state.fence, state.committed, state.position)
        connection.execute(self._write_query, (*numbers, place.group, place.partition))


class _Session:
    """A connection, and the one thread for its blocking calls: what is asked for later is done later.

    That holds also for a call that nobody waits for any more.
    """

    def __init__(self, conninfo: str, where: str, timeout: float) -> None:
        self._conninfo = conninfo
        self._where = where
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, "echelon-postgres")
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection, once it was made."""
        assert self._connection is not None
        return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection could not be made, or was lost."""
        return self._connection is None or self._connection.closed

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in the thread. Raises Unreachable if that takes too long; the connection is then lost."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(_note)
        if not (await asyncio.wait({future}, timeout=self._timeout))[0]:
            self.hang_up()
            raise Unreachable(f"{self._where} did not answer within {self._timeout:g} s")
        try:
            return future.result()
        except psycopg.Error as error:
            raise _explain(error, self._where, is_lost=self.is_lost) from error

    def connect(self) -> None:
        """Connect, if that was not done. Blocks."""
        if self._connection is None:
            connection = psycopg.connect(self._conninfo, connect_timeout=ceil(self._timeout))
            self._connection = connection
            connection.execute(_LIMIT)
            connection.commit()

    def roll_back(self) -> None:
        """Undo what was not committed. Blocks."""
        if self._connection is not None:
            self._connection.rollback()

    def hang_up(self) -> None:
        """Let a call that waits for the server end now; the connection is lost."""
        if not self.is_lost:
            with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection as soon as the calls before have ended. Does not block."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@contextmanager
def connected(conninfo: str, timeout: float = 10.0) -> Iterator[Connection]:
    """A connection for who only reads. Blocks; `timeout` is how many seconds connecting may take.

    Raises InvalidConfig, Denied, Unreachable, in the block too; PostgreSQL's own errors about statements pass.
    """
    where, connection = _server(conninfo), None
    try:
        with psycopg.connect(conninfo, connect_timeout=ceil(timeout)) as connection:
            yield connection
    except psycopg.Error as error:
        # By now it is closed in any case; `broken` tells whether it was lost before.
        raise _explain(error, where, is_lost=connection is None or connection.broken) from error


def _server(conninfo: str) -> str:
    """What to call the server in errors. Raises InvalidConfig."""
    try:
        known = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:  # Its words may hold the password.
        raise InvalidConfig(
            "that is no PostgreSQL connection string",
            remedy="Write postgresql://user:password@host:port/database",
        ) from None
    return f"PostgreSQL at {known.get('host', 'localhost')}"


def _note(future: "asyncio.Future[Any]") -> None:
    """Look at the result, which asyncio would else complain about if nobody waits for it any more."""
    if not future.cancelled():
        future.exception()


def _explain(error: psycopg.Error, where: str, *, is_lost: bool) -> Exception:
    """The error to raise; PostgreSQL's own if it is about the user's statements."""
    state, words = error.sqlstate or "", f"{where}: {str(error).strip()}"
    if state.startswith("28") or state == "42501" or _REFUSED.search(words):
        return Denied(words, remedy="Check the credentials, and what the role may do")
    if state == "53100":
        return StorageFull(words, remedy="Make room on the server's disk")
    if is_lost or state.startswith(("08", "40", "53", "55P03", "57")):
        return Unreachable(words, remedy="Check that the server runs and can be reached")
    return error
