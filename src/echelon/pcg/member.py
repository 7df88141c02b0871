"""A process as an instance of a member of a JetStream-native group."""

import asyncio
import contextlib
import logging
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from echelon.errors import ConsumerNotFound, FilterTaken, InvalidConfig, StreamNotFound, Unreachable
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.handlers import Handler, understand
from echelon.pcg.config import Kind
from echelon.pcg.groups import Found, Groups
from echelon.pcg.ledger import Source
from echelon.pcg.letters import DeadLetters
from echelon.pcg.messages import Translator
from echelon.pcg.options import Options, check_options
from echelon.pcg.seat import OldFilters, Seat, sit_down
from echelon.pcg.session import Handling, Session
from echelon.pcg.strictly import Account, Strictly
from echelon.pcg.watch import Watch
from echelon.pcg.widely import Widely
from echelon.pcg.work import Work

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = (0.01, 0.5)
# How long who is not active waits after a change, for who is to make the consumer anew.
_BACK_OFF_SECONDS: Final = (0.4, 0.5)


class Member:
    """An instance of a member. `run` it; `drain` or `stop` it from anywhere in the same event loop.

    One instance of a member is active, the others stand by. The handler is called for the messages of the member's
    partitions, in order; a plain function is called in a thread.
    """

    def __init__(
        self,
        groups: Groups,
        stream: str,
        group: str,
        member: str,
        handler: Handler,
        *,
        kind: Kind | None = None,
        options: Options | None = None,
    ) -> None:
        self.counters = Counters()
        self.is_active = False
        self._groups = groups
        self._stream = stream
        self._group = group
        self._member = member
        self._kind = kind
        self._call = understand(handler)
        self._options = options or Options()
        check_options(self._options, self._call)
        self._left = asyncio.Event()
        self._session: Session | None = None
        self._attempts = 0
        self._old_since: int | None = None
        self._acknowledged = 0

    async def run(self, *, signals: bool = False) -> None:
        """Be an instance until drained or stopped. `signals`: SIGTERM and SIGINT drain.

        A member of an elastic group may be added later. Raises GroupNotFound, GroupDeleted, InvalidConfig; GroupError
        if something about the group changed that may not; and what a handler raised whose message failed for good.
        """
        found = await self._groups.get(self._stream, self._group, self._kind)
        if found.kind == "static" and not found.config.is_in_membership(self._member):
            raise InvalidConfig(
                f"the static group {self._group} has no member {self._member}",
                remedy=f"Use one of {', '.join(found.config.names())}",
            )
        self._watch = Watch(self._groups, found)
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack, signals=signals)
            self._watching = asyncio.ensure_future(self._watch.run())
            try:
                while not self._is_over():
                    await self._sit()
            finally:
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)
            if not self._watching.cancelled():
                await self._forget(found)
                self._watching.result()

    def drain(self) -> None:
        """Finish what is under way, let another instance be active, and end."""
        self._left.set()

    def stop(self) -> None:
        """Cancel what is under way, and end. Plain handlers end by themselves."""
        self._left.set()
        if self._session is not None:
            self._session.leave(cancel=True)

    def _is_over(self) -> bool:
        return self._left.is_set() or self._watching.done()

    async def _open(self, stack: contextlib.AsyncExitStack, *, signals: bool) -> None:
        pool = ThreadPoolExecutor(self._options.lanes, "echelon-pcg")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        found = self._watch.found
        letters = DeadLetters(self._groups, found)
        if self._options.on_failure == "dead_letter":
            await stack.enter_async_context(letters)
        if self._options.ledger is not None:
            await stack.enter_async_context(self._options.ledger)
        for number in (signal.SIGTERM, signal.SIGINT) if signals else ():
            asyncio.get_running_loop().add_signal_handler(number, self.drain)
            stack.callback(asyncio.get_running_loop().remove_signal_handler, number)
        on_failure, translator = self._options.failures(), Translator(found.config)
        self._work = Work(self._call, translator, on_failure, self.counters, letters.bury, pool)

    async def _sit(self) -> None:
        """Sit down and consume for as long as the seat is what it was; or wait until there may be one."""
        self._watch.changed.clear()
        found = self._watch.found
        if not found.config.partition_filters(self._member):
            await self._wait(None)
            return
        try:
            seat = await self._sit_down(found)
        except (FilterTaken, OldFilters, ConsumerNotFound, StreamNotFound, Unreachable) as error:
            # Another member may have to let go first; that takes no longer than a moment.
            logger.log(logging.DEBUG if isinstance(error, FilterTaken) else logging.INFO, "%s; trying again", error)
            first, most = _PAUSE_SECONDS
            await self._wait(min(first * 2**self._attempts, most))
            self._attempts += 1
            return
        self._attempts = 0
        session = await self._consume(found, seat)
        if self._is_over():
            await session.hand_over()
        elif self._is_moved(found):
            await self._make_room(session, seat)

    async def _sit_down(self, found: Found) -> Seat:
        try:
            seat = await sit_down(self._groups, found, self._member, self._options)
        except OldFilters as old:
            # Whoever is active on it makes it anew, or has died.
            self._old_since = self._old_since or now()
            if found.kind == "static" or (old.pinned and now() < self._old_since + int(old.ack_wait * 1000)):
                raise
            await self._groups.consumers.delete(found.consumed, found.consumer(self._member))
            seat = await sit_down(self._groups, found, self._member, self._options)
        self._old_since = None
        if found.kind == "static" and seat.acknowledged < self._acknowledged:
            logger.warning("the consumer %s was deleted; it goes on after %d", seat.consumer, self._acknowledged)
            await self._groups.consumers.reset(seat.stream, seat.consumer, self._acknowledged + 1)
        return seat

    async def _consume(self, found: Found, seat: Seat) -> Session:
        """Consume until the member's partitions change, the consumer is gone, or this instance is to leave."""
        handling = await self._handling(found, seat)
        session = Session(self._groups.consumers, seat, handling, self.counters, self._turn, spin=self._options.spin)
        self._session = session
        self.counters.partitions = len(found.config.partitions(self._member))
        running = asyncio.ensure_future(session.run())
        try:
            while not running.done() and not self._is_over() and not self._is_moved(found):
                self._watch.changed.clear()
                await self._wait(None, running)
            session.leave()
            await running
        except (ConsumerNotFound, StreamNotFound) as error:
            logger.warning("%s; trying again", error)
        except Exception:
            await session.hand_over()
            raise
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._session = None
            self._acknowledged = max(self._acknowledged, session.acknowledged)
            self.counters.partitions, self.counters.lag = 0, {}
            self._turn(active=False)
        return session

    def _is_moved(self, found: Found) -> bool:
        """Whether the member has other partitions than it had."""
        new = self._watch.found.config
        return new.partition_filters(self._member) != found.config.partition_filters(self._member)

    async def _make_room(self, session: Session, seat: Seat) -> None:
        """Delete the consumer after a change if this instance was active, so that each makes its own anew.

        To change its filters is not enough: it would skip what lies before its place in partitions that it gains.
        """
        if session.was_active:
            with contextlib.suppress(ConsumerNotFound, StreamNotFound, Unreachable):
                await self._groups.consumers.delete(seat.stream, seat.consumer)
        else:
            await self._wait(random.uniform(*_BACK_OFF_SECONDS))

    async def _handling(self, found: Found, seat: Seat) -> Handling:
        ledger = self._options.ledger
        if seat.max_ack_pending > 1:
            return Widely(self._work, lanes=self._options.lanes, buffer=2 * seat.max_ack_pending)
        if ledger is None:
            return Strictly(self._work)
        consumers = self._groups.consumers
        details = await consumers.details(seat.stream)

        async def is_acknowledged(sequence: int) -> bool:
            if found.kind == "static":
                return (await consumers.info(seat.stream, seat.consumer)).ack_floor.stream_seq >= sequence
            following = await consumers.next(seat.stream, sequence, ">")
            return following is None or following.seq != sequence

        group, seat_name = f"{found.stream}.{found.name}", f"{found.stream}.{found.name}/{self._member}"
        source = Source(seat_name if found.kind == "static" else group, details.created, seat_name)
        return Strictly(self._work, Account(ledger, source, is_acknowledged))

    def _turn(self, *, active: bool) -> None:
        if active != self.is_active:
            self.is_active = active
            logger.info("%s/%s/%s is %s", self._stream, self._group, self._member, "active" if active else "inactive")
            (self._options.on_activated if active else self._options.on_deactivated)()

    async def _wait(self, seconds: float | None, *tasks: "asyncio.Task[None]") -> None:
        """Wait until the configuration changes, a task ends or this instance is to leave; at most so long."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._watch.changed, self._left)]
        waiting = {self._watching, *events, *tasks}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()

    async def _forget(self, found: Found) -> None:
        """Delete the consumer of a static member whose group is gone: nobody else would."""
        if found.kind == "static":
            with contextlib.suppress(ConsumerNotFound, StreamNotFound, Unreachable):
                await self._groups.consumers.delete(found.consumed, found.consumer(self._member))
