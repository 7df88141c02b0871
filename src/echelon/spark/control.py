"""The wire between a seat and its query: Spark runs the source's reader in a process of its own.

The seat listens on a Unix socket in a folder that only this user can open. The reader asks what the next batch is and
what it consists of; each request and each answer is a line of JSON.
"""

import asyncio
import contextlib
import logging
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from echelon.errors import EchelonError
from echelon.spark.batch import Offset, Stretch
from echelon.spark.process import Where

logger = logging.getLogger(__name__)


class Next(Struct, frozen=True, tag="next"):
    """Asks for the next batch, now that everything up to `start` is committed. The answer may take a while."""

    start: dict[str, Stretch]


class Plan(Struct, frozen=True, tag="plan"):
    """Asks what of the batch that ends at `end` is to be read."""

    end: dict[str, Stretch]


class Answer(Struct, frozen=True):
    """Stretches by partition, or why there are none. For a plan also where the streams are, by name.

    Where they are may hold credentials: so it comes this way, and not as an option of the source, which Spark shows.
    """

    stretches: dict[str, Stretch] = {}
    places: dict[str, Where] = {}
    tasks: int = 1
    error: str = ""


Asked = Next | Plan
_encoder = msgspec.json.Encoder()
_asked = msgspec.json.Decoder(Asked)
_answer = msgspec.json.Decoder(Answer)
# An offset of 4,096 partitions is well below this.
_LONGEST_LINE = 1 << 20


class Control:
    """Answers one run of a query. Use it as an async context manager; leaving it cancels what is being answered."""

    def __init__(
        self, next_batch: Callable[[Offset], Awaitable[Answer]], plan: Callable[[Offset], Awaitable[Answer]]
    ) -> None:
        self._next_batch = next_batch
        self._plan = plan
        self._talks: set[asyncio.Task[None]] = set()
        self.path = ""

    async def __aenter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="echelon-")
        self.path = str(Path(self._folder) / "seat")
        self._server = await asyncio.start_unix_server(self._accept, self.path, limit=_LONGEST_LINE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._ended)

    def _ended(self, talk: asyncio.Task[None]) -> None:
        self._talks.discard(talk)
        if not talk.cancelled() and talk.exception() is not None:
            logger.error("the query cannot be answered", exc_info=talk.exception())

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(_encoder.encode(await self._answered(_asked.decode(line))) + b"\n")
                await writer.drain()

    async def _answered(self, asked: Asked) -> Answer:
        try:
            match asked:
                case Next(start=start):
                    return await self._next_batch(start)
                case Plan(end=end):
                    return await self._plan(end)
        except EchelonError as error:
            return Answer(error=str(error))


class Wire:
    """The reader's end. Blocks. Raises ConnectionError when the seat's process is gone."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")

    def ask(self, asked: Asked) -> Answer:
        """The seat's answer."""
        self._socket.sendall(_encoder.encode(asked) + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the seat has ended this query")
        answer = _answer.decode(line)
        if answer.error:
            raise EchelonError(answer.error)
        return answer

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()
