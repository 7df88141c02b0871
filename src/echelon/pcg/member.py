"""A process as an instance of a member of a JetStream-native group."""

import asyncio
import contextlib
import logging
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from echelon.errors import (
    ConsumerNotFound,
    Denied,
    FilterTaken,
    GroupDeleted,
    GroupError,
    InvalidConfig,
    StreamNotFound,
    Unreachable,
)
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.handlers import Handler, understand
from echelon.pauses import pause
from echelon.pcg.config import Format, Kind
from echelon.pcg.found import Found
from echelon.pcg.groups import Groups
from echelon.pcg.ledger import Source
from echelon.pcg.letters import DeadLetters
from echelon.pcg.messages import Translator
from echelon.pcg.options import Options, check_options
from echelon.pcg.progress import Progress
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
    partitions, in order; a plain function is called in a thread. `format` is needed only for a static group of Java's
    that no instance has joined yet: nothing tells it from one of Go v0.1.
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
        format: Format | None = None,
        options: Options | None = None,
    ) -> None:
        self.counters = Counters()
        self.is_active = False
        self._groups = groups
        self._stream = stream
        self._group = group
        self._member = member
        self._kind = kind
        self._format = format
        self._call = understand(handler)
        self._options = options or Options()
        check_options(self._options, self._call)
        self._left = asyncio.Event()
        self._session: Session | None = None
        self._attempts = 0
        self._old_since: int | None = None
        self._progress = Progress(groups.consumers)

    async def run(self, *, signals: bool = False) -> None:
        """Be an instance until drained or stopped. `signals`: SIGTERM and SIGINT drain.

        A member of an elastic group may be added later. A consumer or work queue that was deleted is made anew. Raises
        GroupNotFound, GroupDeleted, InvalidConfig; GroupError if something about the group changed that may not, or
        the work queue was deleted and there is a ledger; and what a handler raised whose message failed for good.
        """
        found = await self._groups.get(self._stream, self._group, self._kind, format=self._format)
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
                if self._watching.done():
                    await self._watching
            finally:
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)
                if self._watch.end is not None:
                    await self._forget(found)

    def drain(self) -> None:
        """Finish what is under way, let another instance be active, and end. Nothing more is begun."""
        self._left.set()
        if self._session is not None:
            self._session.leaving = True

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
            handled = await self._progress.begin(found, self._member, seat)
            handling = await self._handling(found, seat)
        except (FilterTaken, OldFilters, ConsumerNotFound, StreamNotFound, Unreachable) as error:
            # Another member may have to let go first; that takes no longer than a moment.
            logger.log(logging.DEBUG if isinstance(error, FilterTaken) else logging.INFO, "%s; trying again", error)
            if isinstance(error, StreamNotFound):
                await self._restore(found)
            await self._wait(pause(*_PAUSE_SECONDS, self._attempts))
            self._attempts += 1
            return
        self._attempts = 0
        session = Session(
            self._groups.consumers,
            seat,
            handling,
            self.counters,
            self._turn,
            spin=self._options.spin,
            handled=handled,
        )
        await self._consume(found, session)
        if self._is_over():
            await session.hand_over()
        elif self._is_moved(found):
            await self._make_room(session, seat)
        else:
            await self._note_deletion(session, seat)

    async def _sit_down(self, found: Found) -> Seat:
        try:
            seat = await sit_down(self._groups, found, self._member, self._options)
        except OldFilters as old:
            # Whoever is active on it makes it anew, or has died. A static group was deleted: its instances are ending.
            self._old_since = self._old_since or now()
            is_late = now() >= self._old_since + int(old.ack_wait * 1000)
            if found.kind == "static" and is_late:
                raise GroupError(old.what, remedy=old.remedy) from None
            if found.kind == "static" or (old.pinned and not is_late):
                raise
            await self._groups.consumers.delete(found.consumed, found.consumer(self._member))
            seat = await sit_down(self._groups, found, self._member, self._options)
        self._old_since = None
        return seat

    async def _restore(self, found: Found) -> None:
        """Make the work queue anew, if that is what is missing. Raises GroupError with a ledger."""
        if found.kind == "static":
            return
        if self._options.ledger is not None:
            raise GroupError(
                f"the work queue {found.consumed} is gone; in another one, nothing tells what has had its effect",
                remedy="Delete the group and create it anew; it then begins with the first message of the stream",
            )
        try:
            await self._groups.restore(found)
        except (StreamNotFound, Unreachable, Denied) as error:
            logger.info("the work queue %s is gone, and cannot be made anew yet: %s", found.consumed, error)

    async def _note_deletion(self, session: Session, seat: Seat) -> None:
        """What is consumed from was deleted. Who was active goes on at once, for it knows how far it had come."""
        await self._watch.look()
        if not session.pull.pin:
            await self._wait(seat.ack_wait)

    async def _consume(self, found: Found, session: Session) -> None:
        """Consume until the member's partitions change, the consumer is gone, or this instance is to leave."""
        self._session = session
        self.counters.partitions = len(found.config.partitions(self._member))
        running = asyncio.ensure_future(session.run())
        try:
            while not running.done() and not self._is_over() and not self._is_moved(found):
                self._watch.changed.clear()
                await self._wait(None, running)
            began = now()
            session.leave()
            await running
            self.counters.note_drain((now() - began) / 1000)
        except (ConsumerNotFound, StreamNotFound) as error:
            logger.warning("%s; trying again", error)
        except Exception:
            await session.hand_over()
            raise
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._session = None
            self._progress.end(session.handled)
            self.counters.partitions, self.counters.lag = 0, {}
            self._turn(active=False)

    def _is_moved(self, found: Found) -> bool:
        """Whether the member has other partitions than it had."""
        new = self._watch.found.config
        return new.partition_filters(self._member) != found.config.partition_filters(self._member)

    async def _make_room(self, session: Session, seat: Seat) -> None:
        """Delete the consumer after a change if this instance was active, so that each makes its own anew.

        To change its filters is not enough: it would skip what lies before its place in partitions that it gains.
        """
        pin, consumers = session.pull.pin, self._groups.consumers
        with contextlib.suppress(ConsumerNotFound, StreamNotFound, Unreachable):
            if pin and (await consumers.info(seat.stream, seat.consumer)).pinned == pin:
                await consumers.delete(seat.stream, seat.consumer)
                return
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
            try:
                (self._options.on_activated if active else self._options.on_deactivated)()
            except Exception:
                logger.exception("what was to be called then has failed")

    async def _wait(self, seconds: float | None, *tasks: "asyncio.Task[None]") -> None:
        """Wait until the configuration changes, a task ends or this instance is to leave; at most so long."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._watch.changed, self._left)]
        waiting = {self._watching, *events, *tasks}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()

    async def _forget(self, found: Found) -> None:
        """Delete the consumer of a static member whose group is another, or one that was made when it was gone."""
        if found.kind == "static":
            name, consumers = found.consumer(self._member), self._groups.consumers
            with contextlib.suppress(ConsumerNotFound, StreamNotFound, Unreachable):
                is_used = (await consumers.info(found.consumed, name)).ack_floor.consumer_seq > 0
                if not (is_used and isinstance(self._watch.end, GroupDeleted)):
                    await consumers.delete(found.consumed, name)
