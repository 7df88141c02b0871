"""A real process that is a member: handles messages by appending a line for each to a file.

Run as `python -m tests.members.process <json>`; the JSON is a `Cast`. A line says what was handled, by whom, under
which epoch, and when, by a clock that all processes of this machine share.
"""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import msgspec

from echelon.brokers.connect import open_broker
from echelon.group.records import Profile
from echelon.members.events import Event
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message


class Cast(msgspec.Struct, frozen=True):
    """What a process is to be."""

    url: str
    group: str
    name: str
    output: str
    member: str | None = None
    priority: int = 0
    min_pending: int | None = None
    slow: float = 0.0
    """Seconds that handling a message takes."""
    lanes: int = 16
    batch: bool = False
    apart: bool = False
    """Behave as on a machine of its own: others cannot see when it is gone."""
    fail: str = ""
    """Handling a message with these data fails."""


class Line(msgspec.Struct, frozen=True):
    """One message, handled."""

    name: str
    partition: str
    sequence: int
    key: str
    data: str
    epoch: int
    begun: float
    ended: float


def main() -> None:
    """Be the member until drained."""
    cast = msgspec.json.decode(sys.argv[1], type=Cast)
    logging.basicConfig(level=logging.WARNING, format=f"{cast.name} %(message)s")
    output = os.open(cast.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(message: Message, epoch: int) -> None:
        begun = time.monotonic()
        if cast.slow:
            time.sleep(cast.slow)
        if cast.fail and message.data.decode() == cast.fail:
            raise ValueError("told to fail")
        key = (message.key or b"").decode()
        line = Line(
            cast.name, message.partition, message.sequence, key, message.data.decode(), epoch, begun, time.monotonic()
        )
        # One write for each line, so that processes do not mix theirs and a kill loses none that was handled.
        os.write(output, msgspec.json.encode(line) + b"\n")

    def note_all(messages: list[Message], epoch: int) -> None:
        for message in messages:
            note(message, epoch)

    asyncio.run(_sit(cast, note_all if cast.batch else note))


async def _sit(cast: Cast, handler: object) -> None:
    assert callable(handler)
    profile = Profile(cast.name, cast.member, cast.priority, cast.min_pending)
    async with open_broker(cast.url) as broker:
        member = Member(
            broker,
            cast.group,
            handler,
            profile,
            options=Options(lanes=cast.lanes, batch=cast.batch, neighbours=not cast.apart),
            on_event=lambda event: _tell(cast, event),
        )
        await member.run(signals=True)


def _tell(cast: Cast, event: Event) -> None:
    with Path(f"{cast.output}.events").open("a") as events:
        events.write(f"{time.monotonic():.3f} {cast.name} {event}\n")


if __name__ == "__main__":
    main()
