"""How far an instance has come, so that it goes on there if its consumer or its work queue was deleted."""

import logging

from echelon.brokers.nats.pull_consumers import Consumers
from echelon.errors import Denied, StreamNotFound, Unreachable
from echelon.pcg.found import Found
from echelon.pcg.seat import Seat

logger = logging.getLogger(__name__)


class Progress:
    """What one instance has handled, in sequences of the group's stream: a work queue that is made anew has its own.

    `begin` is called when it has sat down, `end` when it sits no more. What it knows counts only for the same
    partitions and as long as the stream is the same: one that is made anew counts from 1.
    """

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._handled = 0
        self._of: tuple[str, tuple[str, ...]] = ("", ())
        self._kept = ""
        self._is_new = False

    async def begin(self, found: Found, member: str, seat: Seat) -> int:
        """The sequence up to which all that is to come was handled before; 0 if that is not so, or not known.

        A static member's consumer that was made anew goes on behind it. Raises StreamNotFound, ConsumerNotFound,
        Unreachable.
        """
        of = await self._made(found.stream), found.config.partition_filters(member)
        # The server keeps what was handled in a static member's consumer, or an elastic group's work queue.
        kept = seat.made if found.kind == "static" else await self._made(found.consumed)
        if of != self._of or not of[0]:
            self._handled, self._is_new = 0, False
        elif self._kept != kept:
            self._is_new = True
        if self._is_new and found.kind == "static" and seat.acknowledged < self._handled:
            logger.warning("the consumer %s was deleted; it goes on after %d", seat.consumer, self._handled)
            try:
                await self._consumers.reset(seat.stream, seat.consumer, self._handled + 1)
            except Unreachable:  # So does a server before 2.14 answer: then what was handled comes again.
                return self._handled
        self._of, self._kept = of, kept
        return self._handled if self._is_new and found.kind == "elastic" else 0

    def end(self, handled: int) -> None:
        """All of the member's partitions up to this sequence was handled; 0 if nothing is known."""
        self._handled = handled or self._handled

    async def _made(self, stream: str) -> str:
        """When a stream was made; empty if it is not there, or this account may not know."""
        try:
            return (await self._consumers.details(stream)).created
        except (StreamNotFound, Denied):
            return ""
