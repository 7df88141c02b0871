"""Messages by iterating over them instead of by a handler: each counts as processed when the next is asked for."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from msgspec import Struct, structs

from echelon.brokers.base import Broker
from echelon.group.records import Profile
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message


class _Offer(Struct):
    """A message for the loop. `taken` is done when the loop has ended with it, and cancelled if it is not to begin."""

    message: Message
    taken: asyncio.Future[None]
    begun: bool = False

    async def wait(self) -> None:
        """Wait until the loop has ended with it. Once that has begun nobody can stop it, so who is cancelled waits."""
        try:
            await asyncio.shield(self.taken)
        except asyncio.CancelledError:
            if not self.begun:
                self.taken.cancel()
            while not self.taken.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((self.taken,))
            raise


async def messages(
    broker: Broker, group: str, profile: Profile, *, options: Options | None = None, signals: bool = False
) -> AsyncGenerator[Message, None]:
    """The messages of the seat's partitions, one at a time, each partition in order.

    Close the generator to leave: the message at hand does not count as processed. It ends by itself when `signals`
    is set and the process is told to end. Raises as `Member.run` does.
    """
    offers: asyncio.Queue[_Offer] = asyncio.Queue(maxsize=1)

    async def give(message: Message) -> None:
        offer = _Offer(message, asyncio.get_running_loop().create_future())
        await offers.put(offer)
        await offer.wait()

    member = Member(broker, group, give, profile, options=structs.replace(options or Options(), lanes=1))
    sitting = asyncio.ensure_future(member.run(signals=signals))
    at_hand: _Offer | None = None
    try:
        while (at_hand := await _next(offers, sitting)) is not None:
            if not at_hand.taken.done():
                at_hand.begun = True
                yield at_hand.message
                at_hand.taken.set_result(None)
    finally:
        member.stop()
        if at_hand is not None and not at_hand.taken.done():
            at_hand.taken.set_result(None)
        await sitting


async def _next(offers: "asyncio.Queue[_Offer]", sitting: asyncio.Task[None]) -> _Offer | None:
    """The next message for the loop; None once the member has ended."""
    getting = asyncio.ensure_future(offers.get())
    try:
        await asyncio.wait((getting, sitting), return_when=asyncio.FIRST_COMPLETED)
        return None if sitting.done() else getting.result()
    finally:
        getting.cancel()
