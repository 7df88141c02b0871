"""How long an instance may take itself for the active one.

The server pins a client until that has asked for no messages for the pin's timeout. An instance knows that it was
pinned when it asked for messages (which begins the timeout anew) if it asks after that who is pinned, and is told its
own id. From the moment it had asked for messages it may begin with them for one timeout, by its own clock, which counts
a machine's sleep. So an instance that was suspended or cut off begins with nothing when it comes back, however much it
had received.

Who takes over from one that was killed has to wait for the rest of that timeout. So an instance asks for messages no
more often than it must, and only looks who is pinned in between.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_consumers import Consumers
from echelon.errors import Unreachable
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.pcg.seat import Seat

logger = logging.getLogger(__name__)


class Turn(Protocol):
    """What is told when an instance becomes active, or is so no more."""

    def __call__(self, *, active: bool) -> None:
        """Must not block."""
        ...


class Lease:
    """An instance's knowledge of its pin. `keep` runs beside the pulling.

    `turn(active=...)` is called when the instance becomes active, and when it is so no more.
    """

    def __init__(self, consumers: Consumers, seat: Seat, counters: Counters, turn: Turn) -> None:
        self.until = 0
        """No message may be begun after this, in milliseconds of `members.clock`."""
        self.pending = 0
        """How many messages waited when it was last renewed."""
        self.acknowledged = 0
        """Everything up to this sequence was acknowledged then."""
        self._consumers = consumers
        self._seat = seat
        self._counters = counters
        self._turn = turn
        self._pin = int(seat.pin_seconds * 1000)
        self._span = min(seat.pin_seconds, seat.ack_wait)
        self._is_active = False
        self._wanted = asyncio.Event()
        self._granted = asyncio.Event()

    @property
    def holds(self) -> bool:
        """Whether a message may be begun now."""
        return now() < self.until

    async def granted(self) -> None:
        """Return when a message may be begun."""
        while not self.holds:
            self._granted.clear()
            self._wanted.set()
            await self._granted.wait()

    def pinned(self) -> None:
        """A message came under a new id: who knows when it was sent."""
        self.until = 0
        self._wanted.set()

    def lost(self) -> None:
        """The server has refused the id."""
        self._note_lapse()
        self.until = 0
        if self._is_active:
            self._is_active = False
            self._turn(active=False)

    async def keep(self, pull: Pull, still_at_work: Callable[[], None]) -> None:
        """Renew the lease for ever. `still_at_work` is called each time that nobody else is known to be active.

        Raises ConsumerNotFound, StreamNotFound.
        """
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            try:
                # The last request may be half a span old when it is looked at. The rest is for this and the answer.
                async with asyncio.timeout_at(looked + self._span / 4):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            looked = loop.time()
            self._wanted.clear()
            try:
                await self._renew(pull, still_at_work)
            except Unreachable as error:
                logger.info("who is active on %s is not known: %s", self._seat.consumer, error)
                await asyncio.sleep(self._span / 30)

    def _note_lapse(self) -> None:
        """Count it, once, if the lease ran out while this instance was active."""
        if self._is_active and self.until and not self.holds:
            self.until = 0
            self._counters.fenced += 1

    async def _renew(self, pull: Pull, still_at_work: Callable[[], None]) -> None:
        pin = pull.pin
        if not pin:
            return
        self._note_lapse()
        if pull.asked + self._pin < now() + self._span * 1000 / 3:
            pull.renew()  # What keeps the pin without that is late.
        asked = int(pull.asked)
        info = await self._consumers.info(self._seat.stream, self._seat.consumer)
        self.pending, self.acknowledged = info.num_pending, info.ack_floor.stream_seq
        if pull.pin != pin:
            return
        if info.pinned == pin and asked:
            self.until = asked + self._pin
            self._granted.set()
            if not self._is_active:
                self._is_active = True
                self._turn(active=True)
        if info.pinned in (pin, ""):
            # Unpinned, but nobody is active yet: what was begun may end, and is not to be delivered again.
            still_at_work()
        else:
            pull.forget_pin()
