"""Several messages under way: lanes side by side, in order by key, as in other groups."""

import asyncio
from collections import deque
from collections.abc import Callable

from echelon.brokers.nats.pull_message import Pulled
from echelon.members.handlers import Call, check_result
from echelon.members.lanes import Lanes
from echelon.members.options import Options
from echelon.model import Message
from echelon.pcg.session import Session
from echelon.pcg.work import Work


class Widely:
    """Has the messages of one session handled in lanes. Each is acknowledged as soon as it is done.

    A message that is delivered again while it is under way is not handled twice.
    """

    def __init__(self, work: Work, *, lanes: int, buffer: int) -> None:
        self._work = work
        self._options = Options(lanes=lanes, buffer=buffer)
        self._done: deque[int] = deque()

    async def work(self, session: Session) -> None:
        """Handle messages as they come, as `session.Handling` describes it."""
        loop = asyncio.get_running_loop()
        idle = asyncio.Event()

        def note(message: Message) -> None:
            self._done.append(message.sequence)
            if len(self._done) == 1:
                loop.call_soon_threadsafe(self._acknowledge, session)

        failures = self._work.failures(note)
        lanes = Lanes(
            _noting(self._work.call, note),
            0,
            0,
            options=self._options,
            failures=failures,
            pool=self._work.pool,
            deadline=lambda: session.lease.until,
            on_idle=idle.set,
        )
        try:
            while not session.leaving:
                await self._put(session, lanes)
                if failures.failure is not None:
                    raise failures.failure
        finally:
            lanes.stop(cancel=not session.leaving)
            while lanes.busy:
                idle.clear()
                await idle.wait()
            self._acknowledge(session)

    async def _put(self, session: Session, lanes: Lanes) -> None:
        fresh: list[Message] = []
        for pulled in await session.take():
            if pulled.sequence not in session.under_way:
                fresh.append(self._work.translator.message(pulled))
            session.under_way[pulled.sequence] = pulled
        if fresh:
            await session.lease.granted()
            await lanes.put(fresh)

    def _acknowledge(self, session: Session) -> None:
        while self._done:
            pulled: Pulled | None = session.under_way.pop(self._done.popleft(), None)
            if pulled is not None:
                pulled.ack()
                self._work.counters.messages += 1


def _noting(call: Call, note: Callable[[Message], None]) -> Call:
    """The handler, with a note of each message that it has handled."""

    async def waiting(message: Message) -> None:
        await call.handler(message)
        note(message)

    def plain(message: Message) -> None:
        check_result(call.handler(message))
        note(message)

    return Call(waiting if call.waits else plain, call.waits, epoch=False)
