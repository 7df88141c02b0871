"""Exactly once into PostgreSQL, by two-phase commit: prepare, acknowledge, commit."""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar

from echelon.errors import Denied, InvalidConfig, MissingComponent, Unreachable
from echelon.members.handlers import in_thread, is_cancelled
from echelon.pcg.ledger import Committed, Source

try:
    import psycopg
    from psycopg import sql
    from psycopg.pq import TransactionStatus
except ModuleNotFoundError as missing:
    raise MissingComponent("psycopg is not installed", remedy="Run: pip install 'echelon[postgres]'") from missing

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS {table} (
        source text NOT NULL, identity text NOT NULL, sequence bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (source, identity, sequence)
    )
"""
_CLAIM: Final = "INSERT INTO {table} (source, identity, sequence) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_IS_THERE: Final = "SELECT FROM {table} WHERE source = %s AND identity = %s AND sequence = %s"
# Held while the table is made: CREATE TABLE IF NOT EXISTS alone fails if two do it at once. Any number will do.
_MAKING: Final = 7_262_018_444
# Who held the seat before, and may be frozen in the middle of a transaction.
_TERMINATE: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND pid <> pg_backend_pid() AND datname = current_database()
"""
_PREPARED: Final = """
    SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE %s ORDER BY prepared
"""
_LOCK_TIMEOUT: Final = "2s"


class PostgresLedger:
    """A ledger in the PostgreSQL database at `conninfo`; sequences are in `table` (`name` or `schema.name`).

    Handlers get a psycopg cursor and write with it, in any thread (a coroutine function blocks its event loop
    meanwhile); they must not end the transaction. A handler that catches an error of PostgreSQL's needs a savepoint,
    `with cursor.connection.transaction()`, around what may fail; without one it has failed. So has one that rolls back.
    One that commits, by a method or a statement, ends the member with `Committed`: this instance does not acknowledge
    the message; the next one, also a stand-by, takes it for done. That is noticed unless it begins another
    transaction, or the connection is lost, before it ends. That the connection is lost is no failure of the handler,
    whatever it raises then: the message comes again. The server needs `max_prepared_transactions` of at least the
    number of members, better twice that. Rows of `table` may be deleted when they are older than any process could be
    suspended; each is some 100 bytes.
    """

    def __init__(self, conninfo: str, *, table: str = "echelon_messages", timeout: float = 10.0) -> None:
        self._conninfo = conninfo
        names = sql.Identifier(*table.split("."))
        statements = (_CREATE, _CLAIM, _IS_THERE)
        self._create, self._claim, self._is_there = (sql.SQL(each).format(table=names) for each in statements)
        self._timeout = timeout
        self._instance = uuid.uuid4().hex
        self._connection: Connection | None = None
        self._seat = ""
        self._prepared = ""
        """What this instance has prepared and not committed yet."""
        self._ended = ""
        """The message whose handler was the last, if it has ended the transaction itself."""
        self._left: dict[int, list[str]] = {}
        """What others have prepared, by the sequence of the message, of messages that will be delivered again."""

    async def __aenter__(self) -> Self:
        """Connect, and make the table if it is not there. Raises Denied, Unreachable, InvalidConfig."""
        self._thread = ThreadPoolExecutor(1, "echelon-postgres")
        try:
            await self._run(self._open)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def take_over(self, source: Source, is_acknowledged: Callable[[int], Awaitable[bool]]) -> None:
        """Resolve what former instances have prepared, as `Ledger.take_over` describes it."""
        self._seat = f"echelon-{_digest(source.seat)}"
        self._prepared = ""
        self._left = {}
        await self._run(self._send_away)
        for name in await self._run(partial(self._find, f"{_prefix(source)}/%")):
            sequence = int(name.split("/")[2])
            if await is_acknowledged(sequence):
                await self._run(partial(self._end, name, "COMMIT"))
            else:
                self._left.setdefault(sequence, []).append(name)

    async def process(
        self,
        source: Source,
        sequence: int,
        work: Callable[[Cursor], Awaitable[None]],
        acknowledge: Callable[[], Awaitable[None]],
    ) -> None:
        """Let `work` write the results of a message, prepare, acknowledge, commit, as `Ledger.process` says."""
        name = f"{_prefix(source)}/{sequence}/{self._instance}"
        if name != self._prepared:
            if await self._run(partial(self._begin, source, sequence)):
                await self._work(source, sequence, name, work)
            elif name == self._ended:
                raise _committed(sequence)
        await acknowledge()
        if self._prepared:
            await self._run(partial(self._end, self._prepared, "COMMIT"))
            self._prepared = ""

    async def _work(self, source: Source, sequence: int, name: str, work: Callable[[Cursor], Awaitable[None]]) -> None:
        """Call `work` and prepare what it wrote. If that fails nothing is left of it, unless `work` has committed."""
        connection = self._cursor.connection
        try:
            try:
                await work(self._cursor)
            finally:
                self._ended = name if _is_ended(connection) else ""
            await self._run(partial(self._prepare, name, sequence))
        except BaseException as error:
            is_lost = connection.broken
            # Nothing is acknowledged, so this instance may take it back, also if it was prepared.
            with suppress(Unreachable):
                await self._run(partial(self._take_back, name))
            is_own = isinstance(error, asyncio.CancelledError) and not is_cancelled()
            if not isinstance(error, Exception) and not is_own:
                raise
            if is_lost and not isinstance(error, Unreachable):
                raise _away(error) from error
            if self._ended == name and await self._run(partial(self._find_claim, source, sequence)):
                raise _committed(sequence) from error
            raise
        self._prepared = name

    async def _run(self, work: Callable[[], T]) -> T:
        """Do something in the thread; who is cancelled waits for its end."""
        try:
            return await in_thread(self._thread, lambda _: work(), None)
        except psycopg.errors.InsufficientPrivilege as error:
            raise Denied(f"PostgreSQL: {error}", remedy="Check what the role may do") from error
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            raise _disabled() from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise _away(error) from error

    def _open(self) -> None:
        connection = self._connect()
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            connection.execute(self._create)
        row = connection.execute("SELECT current_setting('max_prepared_transactions')").fetchone()
        if row is None or int(row[0]) < 1:
            raise _disabled()

    def _connect(self) -> Connection:
        """The connection, made anew if it was lost. Transactions are begun and ended by statements of their own."""
        if self._connection is None or self._connection.closed:
            timeout = max(1, round(self._timeout))
            self._connection = psycopg.connect(self._conninfo, autocommit=True, connect_timeout=timeout)
            self._connection.execute(sql.SQL("SET lock_timeout = {}").format(_LOCK_TIMEOUT))
            self._connection.execute(sql.SQL("SET application_name = {}").format(self._seat))
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _send_away(self) -> None:
        """End the connections of whoever had this seat before, so that nothing more is prepared over them."""
        connection = self._connect()
        connection.execute(sql.SQL("SET application_name = {}").format(self._seat))
        connection.execute(_TERMINATE, (self._seat,))

    def _find(self, pattern: str) -> list[str]:
        return [row[0] for row in self._connect().execute(_PREPARED, (pattern,))]

    def _begin(self, source: Source, sequence: int) -> bool:
        """Begin a transaction with the message's sequence in it; False if it is there already."""
        connection = self._connect()
        for other in self._left.pop(sequence, ()):
            self._end(other, "ROLLBACK")
        connection.execute("BEGIN")
        self._cursor = connection.cursor()
        try:
            claimed = self._cursor.execute(self._claim, (source.name, source.identity, sequence)).rowcount == 1
        except psycopg.errors.LockNotAvailable:
            # Somebody who is not active any more has prepared it since; who has the message may take that back.
            connection.execute("ROLLBACK")
            self._left[sequence] = self._find(f"{_prefix(source)}/{sequence}/%")
            raise
        if not claimed:
            connection.execute("ROLLBACK")
        return claimed

    def _find_claim(self, source: Source, sequence: int) -> bool:
        values = (source.name, source.identity, sequence)
        return self._connect().execute(self._is_there, values).rowcount == 1

    def _prepare(self, name: str, sequence: int) -> None:
        self._cursor.close()
        if not self._ended:
            # If the connection was lost, so is the transaction: a new one would have nothing to prepare.
            done = self._cursor.connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(name))
            # After an error that was caught PostgreSQL rolls back, and does not call that an error.
            if done.statusmessage == "PREPARE TRANSACTION":
                return
        raise InvalidConfig(
            f"message {sequence} has no transaction any more: its handler caught an error of PostgreSQL's, or ended it",
            remedy="Raise the error, or put what may fail into a savepoint: with cursor.connection.transaction()",
        )

    def _take_back(self, name: str) -> None:
        self._connect().rollback()
        self._end(name, "ROLLBACK")

    def _end(self, name: str, how: Literal["COMMIT", "ROLLBACK"]) -> None:
        """Commit or roll back what is prepared. If it is not there any more, somebody else has done that."""
        with suppress(psycopg.errors.UndefinedObject):
            self._connect().execute(sql.SQL("{} PREPARED {}").format(sql.SQL(how), name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _prefix(source: Source) -> str:
    return f"echelon/{_digest(f'{source.name} {source.identity}')}"


def _is_ended(connection: Connection) -> bool:
    """Whether a transaction that was begun there was ended since, other than by the loss of the connection."""
    if connection.closed:
        return not connection.broken
    return connection.info.transaction_status is TransactionStatus.IDLE


def _away(error: BaseException) -> Unreachable:
    return Unreachable(f"PostgreSQL: {str(error).strip()}", remedy="Check that it runs")


def _committed(sequence: int) -> Committed:
    return Committed(
        f"the handler of message {sequence} has committed by itself; what it wrote until then is in the database",
        remedy="Let it leave the transaction open. A process that is started anew takes the message for done, unless "
        "you delete the message's row from the ledger's table",
    )


def _disabled() -> InvalidConfig:
    return InvalidConfig(
        "the PostgreSQL server prepares no transactions",
        remedy="Set max_prepared_transactions to twice the number of members, and restart it",
    )
