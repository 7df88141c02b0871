"""One instance on its member's consumer: pulls, has messages handled, and keeps the pin while it is active."""

import asyncio
import logging
import re
from typing import Final, Protocol

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_consumers import Consumers
from echelon.brokers.nats.pull_message import Pulled
from echelon.brokers.nats.pull_request import PullRequest
from echelon.errors import BrokerError
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.pcg.lease import Lease, Turn
from echelon.pcg.seat import Seat

logger = logging.getLogger(__name__)

# The server adds it to what a stream sources from another: that one's name, the sequence there, and more.
_ORIGIN: Final = re.compile(rb"\r\nNats-Stream-Source: \S+ (\d+) ")
_LEAST_EXPIRY: Final = 0.5
_LEAST_BATCH: Final = 500  # as in Go
_TURN: Final = 0.2


class Handling(Protocol):
    """What has messages handled: one by one, or in lanes."""

    async def work(self, session: "Session") -> None:
        """Take messages from the session's pull and have them handled, for ever, or until the session is leaving.

        Cancelled, it ends when what it cannot cancel has ended. Raises what a handler raised that failed for good.
        """
        ...


class Session:
    """Runs until the consumer is gone, a message fails for good, or it is told to `leave`.

    `turn(active=...)` is called when the instance becomes active and when it is so no more. Messages up to the sequence
    `handled` of the group's stream were handled before: they are acknowledged as they come.
    """

    def __init__(
        self,
        consumers: Consumers,
        seat: Seat,
        handling: Handling,
        counters: Counters,
        turn: Turn,
        *,
        spin: float,
        handled: int = 0,
    ) -> None:
        self.lease = Lease(consumers, seat, counters, turn)
        self.under_way: dict[int, Pulled] = {}
        """Messages that were taken and are not acknowledged, by sequence."""
        self.done: Pulled | None = None
        """In strict order, what was handled last; None if that is to be handled again."""
        self.leaving = False
        self.idle = True
        """Nothing is being handled, so that the work may be cancelled at any moment."""
        self._consumers = consumers
        self._seat = seat
        self._handling = handling
        self._counters = counters
        # Twice what can come: what is asked for is never the limit.
        batch = max(2 * seat.max_ack_pending, _LEAST_BATCH)
        # It is asked for so often that one request may be late, and no more often: see `lease`.
        expires = max(min(seat.pin_seconds, seat.ack_wait) / 2, _LEAST_EXPIRY)
        self.pull = Pull(
            consumers,
            seat.stream,
            seat.consumer,
            PullRequest(batch=batch, expires=expires, group=seat.priority_group),
            on_pinned=lambda _: self.lease.pinned(),
            on_unpinned=lambda _: self._lose(),
            spin=spin,
            clock=now,
        )
        self._handled_before = handled
        self._last: Pulled | None = None
        self._working: asyncio.Task[None] | None = None
        self._is_lost = False

    @property
    def was_active(self) -> bool:
        """Whether the pin was this instance's when the session ended, as far as it knows."""
        return bool(self.pull.pin) and self.lease.holds

    @property
    def handled(self) -> int:
        """All of the member's partitions up to this sequence of the group's stream was handled; 0: it is not known."""
        if self._handled_before:
            return self._handled_before
        if self._seat.max_ack_pending > 1:
            return self.lease.acknowledged if self._seat.kind == "static" else 0
        # In strict order, that a message came shows that all before it is done.
        last, done = self._last, self.done
        if last is None:
            return 0
        return max(self._origin(last) - (done is None or done.sequence != last.sequence), 0)

    async def run(self) -> None:
        """Raises ConsumerNotFound, StreamNotFound, Denied, InvalidConfig, and what a handler raised for good."""
        async with self.pull:
            keeping = asyncio.ensure_future(self.lease.keep(self.pull, self._tell_progress))
            try:
                while not self.leaving:
                    await self._work(keeping)
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                await self.close()
                for pulled in self.under_way.values():
                    pulled.nak()

    async def _work(self, keeping: "asyncio.Task[None]") -> None:
        """Work until the pin is lost, or for good."""
        self._is_lost = False
        self.idle = True
        self._working = asyncio.ensure_future(self._handling.work(self))
        try:
            await asyncio.wait({self._working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._working.done():
                self._working.cancel()
                await asyncio.gather(self._working, return_exceptions=True)
        if self._is_lost:
            # The server gives them to whoever is active now.
            self.under_way.clear()
        if keeping.done():
            keeping.result()
        if not self._working.cancelled():
            self._working.result()
        elif not self._is_lost and not self.leaving:
            raise asyncio.CancelledError

    def leave(self, *, cancel: bool = False) -> None:
        """End when what is under way has been handled and acknowledged; or `cancel` it, if it is a coroutine.

        The rest goes to whoever is active next.
        """
        self.leaving = True
        if (self.idle or cancel) and self._working is not None:
            self._working.cancel()

    async def take(self) -> list[Pulled]:
        """What has come and was not handled before; perhaps nothing. Raises as `Pull.take`."""
        got = await self.pull.take(_TURN)
        if self._handled_before:
            got = self._without_handled(got)
        if got:
            self._last = got[-1]
        return got

    def _without_handled(self, got: list[Pulled]) -> list[Pulled]:
        while got and 0 < self._origin(got[0]) <= self._handled_before:
            got.pop(0).ack()
        if got:
            self._handled_before = 0  # They come in order.
        return got

    def _origin(self, pulled: Pulled) -> int:
        """The message's sequence in the group's stream; 0 if it does not come from there."""
        if self._seat.kind == "static":
            return pulled.sequence
        found = _ORIGIN.search(pulled.header)
        return int(found[1]) if found else 0

    async def close(self) -> None:
        """Let the server deliver no more. What it has delivered meanwhile goes to whoever is active next."""
        for pulled in await self.pull.close():
            self.under_way[pulled.sequence] = pulled

    async def hand_over(self) -> None:
        """Let another instance be active at once, if there is one and it was this one."""
        if self.was_active:
            try:
                await self._consumers.unpin(self._seat.stream, self._seat.consumer, self._seat.priority_group)
            except BrokerError as error:
                logger.info("the pin of %s was not given back: %s", self._seat.consumer, error)

    def _lose(self) -> None:
        """The pin is another's: nothing more is begun, and coroutines are cancelled."""
        self.lease.lost()
        self._is_lost = True
        if self._working is not None:
            self._working.cancel()

    def _tell_progress(self) -> None:
        self._counters.lag = {self._seat.consumer: self.lease.pending}
        for pulled in self.under_way.values():
            pulled.in_progress()
