"""An instance of a member in Python, for `pcg.py`: does nothing with a message.

Handles so many messages and prints how many a second that were; with 0, prints the time of every message and takes
10 ms for it, for ever.
"""

import asyncio
import os
import sys
import time

from echelon.brokers.connect import open_broker
from echelon.group.records import Profile
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message
from echelon.pcg import Member as NativeMember
from echelon.pcg import open_groups

SECONDS = 0.01  # that a message takes, where its time is written down


class Tally:
    """What the handler does: counts, or writes the time down."""

    def __init__(self, count: int) -> None:
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._handled = 0
        self._began = 0.0

    def note(self) -> None:
        """A message is there."""
        if self._count == 0:
            os.write(1, b"%d\n" % time.time_ns())
        elif self._handled == 0:
            self._began = time.perf_counter()
        elif self._handled == self._count - 1:
            print((self._count - 1) / (time.perf_counter() - self._began))
            self._loop.call_soon_threadsafe(self.done.set)
        self._handled += 1

    def handle(self, _message: Message) -> None:
        """A handler that is a plain function."""
        self.note()
        if self._count == 0:
            time.sleep(SECONDS)

    async def wait_and_handle(self, _message: Message) -> None:
        """A handler that is a coroutine function."""
        self.note()
        if self._count == 0:
            await asyncio.sleep(SECONDS)


async def main(kind: str, url: str, stream: str, group: str, count: int) -> None:
    """Be the instance."""
    tally = Tally(count)
    if kind in ("coroutine", "plain"):
        async with open_groups(url) as groups:
            handler = tally.wait_and_handle if kind == "coroutine" else tally.handle
            native = NativeMember(groups, stream, group, "m", handler)
            await until_done(native, tally)
    else:
        async with open_broker(url) as broker:
            options = Options(lanes=1, neighbours=kind != "apart")
            profile = Profile(f"bench-{os.getpid()}", "m")
            await until_done(Member(broker, group, tally.handle, profile, options=options), tally)


async def until_done(member: Member | NativeMember, tally: Tally) -> None:
    """Run a member until enough is counted."""
    running = asyncio.ensure_future(member.run())
    counting = asyncio.ensure_future(tally.done.wait())
    await asyncio.wait({running, counting}, return_when=asyncio.FIRST_COMPLETED)
    counting.cancel()
    member.drain()
    await running


if __name__ == "__main__":
    _, kind, url, stream, group, count = sys.argv
    asyncio.run(main(kind, url, stream, group, int(count)))
