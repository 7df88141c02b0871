"""A real process that processes exactly once into PostgreSQL, and dies or freezes at a chosen moment of one message.

Run as `python -m tests.pcg.accountant <json>`; the JSON is a `Cast`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from echelon.model import Message
from echelon.pcg import Member, Options, open_groups
from echelon.pcg.ledger import Source
from echelon.pcg.postgres import Cursor, PostgresLedger

Moment = Literal["", "handling", "prepared", "acknowledged"]


class Cast(msgspec.Struct, frozen=True):
    """What a process is to be. At the `moment` of the `nth` message it is killed, or frozen by a SIGSTOP."""

    url: str
    stream: str
    name: str
    member: str
    conninfo: str
    moment: Moment = ""
    nth: int = 10
    freeze: bool = False
    ack_wait: float = 1.0


class Faulty(PostgresLedger):
    """Has its process killed or frozen."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast.conninfo)
        self._cast = cast
        self._messages = 0

    async def process(
        self,
        source: Source,
        sequence: int,
        work: Callable[[Cursor], Awaitable[None]],
        acknowledge: Callable[[], Awaitable[None]],
    ) -> None:
        async def work_too(cursor: Cursor) -> None:
            self._messages += 1
            await work(cursor)
            self._fall("handling")

        async def acknowledge_too() -> None:
            self._fall("prepared")
            await acknowledge()
            self._fall("acknowledged")

        await super().process(source, sequence, work_too, acknowledge_too)

    def _fall(self, moment: Moment) -> None:
        if moment == self._cast.moment and self._messages == self._cast.nth:
            self._messages += 1  # Once.
            os.kill(os.getpid(), signal.SIGSTOP if self._cast.freeze else signal.SIGKILL)


def write(cursor: Cursor, stream: str, message: Message, name: str) -> None:
    """The result of a message."""
    values = (stream, message.subject.rpartition(".")[2], int(message.data), name)
    cursor.execute("INSERT INTO results (stream, key, number, name) VALUES (%s, %s, %s, %s)", values)


async def main(cast: Cast) -> None:
    """Be the instance until drained."""

    async def handle(message: Message, cursor: Cursor) -> None:
        write(cursor, cast.stream, message, cast.name)

    options = Options(ack_wait=cast.ack_wait, ledger=Faulty(cast))
    async with open_groups(cast.url) as groups:
        await Member(groups, cast.stream, "g", cast.member, handle, options=options).run(signals=True)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Cast)))
