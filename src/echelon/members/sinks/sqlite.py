"""Exactly once into SQLite: the results and the position are in one file, and change in one transaction."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from echelon.errors import BrokerError, Denied, EchelonError, InvalidConfig, StorageFull, Unreachable
from echelon.group.delivery import SinkState
from echelon.members.handlers import check_plain
from echelon.members.sinks.base import Batch, Place
from echelon.members.sinks.kept import Kept, commit_kept, falls_back, not_reversible, open_kept

T = TypeVar("T")

TakeBack = Callable[[sqlite3.Cursor, str, int], object]
"""Deletes the results of a partition from a position on: `take_back(cursor, partition, position)`."""

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS echelon_positions (
        group_name TEXT NOT NULL, partition TEXT NOT NULL, identity TEXT NOT NULL, made INTEGER NOT NULL,
        fence INTEGER NOT NULL, committed INTEGER NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (group_name, partition)
    ) WITHOUT ROWID
"""
_READ: Final = """
    SELECT identity, made, fence, committed, position FROM echelon_positions WHERE group_name = ? AND partition = ?
"""
_WRITE: Final = "INSERT OR REPLACE INTO echelon_positions VALUES (?, ?, ?, ?, ?, ?, ?)"
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DENIED: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_AGAIN: Final = 0.005


class SqliteSink:
    """A sink in the SQLite file at `path`, in WAL mode; positions are in its table `echelon_positions`.

    Handlers get a cursor and write with it, in any thread (a coroutine function blocks its event loop meanwhile); they
    must not end the transaction (`commit`, `executescript`). SQLite has one writer: transactions of several partitions
    wait for each other, from before the first message is handled until the commit. Those of other processes wait too,
    at most `timeout` seconds, after which Unreachable is raised; a process that is stopped in the middle of a
    transaction keeps them waiting.

    `take_back(cursor, partition, position)` deletes a partition's results from a position on, for resets. It runs
    in a thread. Without it, a reset to an earlier position has to keep the output.
    """

    def __init__(self, path: str | Path, take_back: TakeBack | None = None, *, timeout: float = 10.0) -> None:
        self._path = Path(path)
        self._take_back = take_back
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        """Open the file, and make the table if it is not there. Raises Denied, InvalidConfig, Unreachable."""
        self._lock = asyncio.Lock()
        # One thread: what is asked for later is done later, also if nobody waits for the earlier any more.
        self._thread = ThreadPoolExecutor(1, "echelon-sqlite")
        try:
            self._connection = await self._run(self._connect)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._run(self._connection.close)
        self._thread.shutdown(wait=False)

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `Sink.open` describes it."""
        async with self._lock:
            work = partial(self._open, place, epoch=epoch, reset=reset, position=position, keep=keep)
            return await self._run(work)

    @asynccontextmanager
    async def transaction(self, place: Place, *, epoch: int, begin: int) -> AsyncGenerator[Batch[sqlite3.Cursor], None]:
        """Begin a batch; waits for the transactions of other partitions. Raises Unreachable."""
        async with self._lock:
            cursor = self._connection.cursor()
            commit = partial(self._commit, place, epoch, begin)
            try:
                await self._run(partial(cursor.execute, "BEGIN IMMEDIATE"))
                yield Batch(cursor, lambda end: self._run(partial(commit, end)))
            finally:
                await self._run(partial(self._end, cursor))

    async def _run(self, work: Callable[[], T]) -> T:
        """Do something in the thread, with SQLite's errors as those of Echelon."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.IntegrityError:
            raise  # The results do not fit the user's own tables, who should see that.
        except sqlite3.DatabaseError as error:
            raise _fault(error, self._path) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        deadline = time.monotonic() + self._timeout
        try:
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    break
                except sqlite3.OperationalError as error:  # Changing the mode does not wait for others that do so.
                    if _code(error) not in _BUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(_AGAIN)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_CREATE)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            before = self._read(place)
            after = open_kept(before, place, epoch=epoch, reset=reset, position=position)
            if after is None:
                return None
            if falls_back(before, after) and not keep:
                if self._take_back is None:
                    raise not_reversible(place, after.position)
                check_plain("take_back", self._take_back(cursor, place.partition, after.position))
            self._write(place, after)
        finally:
            self._end(cursor)
        return after.position

    def _commit(self, place: Place, epoch: int, begin: int, end: int) -> bool:
        after = commit_kept(self._read(place), place, epoch=epoch, begin=begin, end=end)
        if after is not None:
            self._write(place, after)
        return after is not None

    def _end(self, cursor: sqlite3.Cursor) -> None:
        """Take the cursor away from whoever still has it, then undo what was not committed."""
        while True:
            try:
                cursor.close()
                break
            except sqlite3.ProgrammingError:  # A handler that nobody waits for any more is in a statement.
                self._connection.interrupt()
                time.sleep(_AGAIN)
        self._connection.rollback()

    def _read(self, place: Place) -> Kept | None:
        row = self._connection.execute(_READ, (place.group, place.partition)).fetchone()
        return None if row is None else Kept(row[0], row[1], SinkState(*row[2:]))

    def _write(self, place: Place, kept: Kept) -> None:
        if not self._connection.in_transaction:
            raise InvalidConfig(
                "the handler has ended the transaction itself: its results are committed without the position",
                remedy="Do not call commit, rollback or executescript in it",
            )
        state = kept.state
        row = (place.group, place.partition, kept.identity, kept.made, state.fence, state.committed, state.position)
        self._connection.execute(_WRITE, row)
        self._connection.execute("COMMIT")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _fault(error: sqlite3.Error, path: Path) -> EchelonError:
    words = f"the SQLite file {path}: {error}"
    match _code(error):
        case code if code in _BUSY:
            return Unreachable(words, remedy="See which process holds a transaction open")
        case code if code in _DENIED:
            return Denied(words, remedy="Check the path, and the permissions of the file and its folder")
        case sqlite3.SQLITE_NOTADB:
            return InvalidConfig(words, remedy="Give the path of a SQLite file, or of one to be made")
        case sqlite3.SQLITE_FULL:
            return StorageFull(words, remedy="Make room on its disk")
    return BrokerError(words)
