"""A real process that is an instance of a member: appends a line to a file for each message that it has handled.

Run as `python -m tests.pcg.process <json>`; the JSON is a `Cast`.
"""

import asyncio
import logging
import os
import sys
import time

import msgspec

from echelon.model import Message
from echelon.pcg import Member, Options, open_groups


class Cast(msgspec.Struct, frozen=True):
    """What a process is to be."""

    url: str
    stream: str
    group: str
    name: str
    member: str
    output: str
    ack_wait: float = 1.0
    max_ack_pending: int = 1
    slow: float = 0.0
    """Seconds that handling a message takes."""
    plain: bool = False
    """The handler is a plain function."""


class Line(msgspec.Struct, frozen=True):
    """One message, handled. Times are of a clock that all processes of this machine share."""

    name: str
    partition: str
    sequence: int
    subject: str
    key: str
    number: int
    began: float
    ended: float


async def main(cast: Cast) -> None:
    """Be the instance until drained."""
    output = os.open(cast.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(message: Message, began: float) -> None:
        key = message.subject.rpartition(".")[2]
        number, ended = int(message.data), time.monotonic()
        line = Line(cast.name, message.partition, message.sequence, message.subject, key, number, began, ended)
        os.write(output, msgspec.json.encode(line) + b"\n")

    async def handle(message: Message) -> None:
        began = time.monotonic()
        await asyncio.sleep(cast.slow)
        note(message, began)

    def handle_plainly(message: Message) -> None:
        began = time.monotonic()
        time.sleep(cast.slow)
        note(message, began)

    options = Options(ack_wait=cast.ack_wait, max_ack_pending=cast.max_ack_pending)
    async with open_groups(cast.url) as groups:
        handler = handle_plainly if cast.plain else handle
        await Member(groups, cast.stream, cast.group, cast.member, handler, options=options).run(signals=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Cast)))
