"""Messages by iterating over them instead of by a handler: each counts as processed when the next is asked for."""

import asyncio
from collections.abc import AsyncGenerator

from msgspec import structs

from echelon.brokers.base import Broker
from echelon.group.records import Profile
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message


async def messages(
    broker: Broker, group: str, profile: Profile, *, options: Options | None = None, signals: bool = False
) -> AsyncGenerator[Message, None]:
    """The messages of the seat's partitions, one at a time, each partition in order.

    Close the generator to leave: the message at hand does not count as processed. It ends by itself when `signals`
    is set and the process is told to end. Raises as `Member.run` does.
    """
    given: asyncio.Queue[tuple[Message, asyncio.Future[None]]] = asyncio.Queue(maxsize=1)

    async def give(message: Message) -> None:
        taken = asyncio.get_running_loop().create_future()
        await given.put((message, taken))
        await taken

    member = Member(broker, group, give, profile, options=structs.replace(options or Options(), lanes=1))
    sitting = asyncio.ensure_future(member.run(signals=signals))
    try:
        while True:
            getting = asyncio.ensure_future(given.get())
            await asyncio.wait((getting, sitting), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                break
            message, taken = getting.result()
            yield message
            taken.set_result(None)
    finally:
        member.stop()
        await sitting
