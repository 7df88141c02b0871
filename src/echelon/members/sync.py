"""For scripts without an event loop of their own: join a group and block, or iterate over its messages."""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import structs

from echelon.brokers.connect import open_broker
from echelon.group.records import Profile
from echelon.members.events import Event
from echelon.members.handlers import Handler
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message

_LOOK: Final = 0.05
"""Seconds after which a thread looks whether the iterator was closed."""


def join(
    url: str,
    group: str,
    handler: Handler,
    profile: Profile,
    *,
    options: Options | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> None:
    """Sit in the group and handle its messages until SIGTERM or Ctrl-C, which drain. Raises as `Member.run` does.

    Credentials come with the URL or from the environment. Call it from the main thread.
    """

    async def sit() -> None:
        async with open_broker(url) as broker:
            await Member(broker, group, handler, profile, options=options, on_event=on_event).run(signals=True)

    asyncio.run(sit())


def consume(
    url: str, group: str, profile: Profile, *, options: Options | None = None
) -> Generator[Message, None, None]:
    """The messages of the seat's partitions; each counts as processed when the next is asked for.

    The member itself runs in a thread beside, so that it keeps its seat however long a message takes. Closing the
    iterator (leaving the loop) leaves the group; the message at hand does not count. Raises as `Member.run` does.
    """
    given: queue.Queue[tuple[Message, threading.Event] | None] = queue.Queue()
    closed, stopped = threading.Event(), threading.Event()

    def give(message: Message) -> None:
        taken = threading.Event()
        given.put((message, taken))
        # Nobody takes it any more once the iterator is closed.
        while not closed.is_set() and not taken.wait(_LOOK):
            pass
        if closed.is_set():
            stopped.wait()
            raise _Closed

    async def sit() -> None:
        async with open_broker(url) as broker:
            member = Member(broker, group, give, profile, options=structs.replace(options or Options(), lanes=1))
            sitting = asyncio.ensure_future(member.run())
            while not sitting.done() and not closed.is_set():
                await asyncio.wait((sitting,), timeout=_LOOK)
            member.stop()
            stopped.set()
            await sitting

    def run() -> None:
        try:
            asyncio.run(sit())
        finally:
            stopped.set()
            given.put(None)

    with ThreadPoolExecutor(1, "echelon-member") as thread:
        sitting = thread.submit(run)
        taken = threading.Event()
        try:
            while (item := given.get()) is not None:
                message, taken = item
                yield message
                taken.set()
        finally:
            closed.set()
            taken.set()
        sitting.result()


class _Closed(Exception):
    """The iterator was closed before the message was processed."""
