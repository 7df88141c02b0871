"""A coroutine function as handler, in a group that is made here and in which every instance has a seat of its own.

$ python examples/async_member.py

Start it several times: the partitions are shared out anew each time one comes or goes.
"""

import asyncio
import os

from echelon.brokers.connect import open_broker
from echelon.group.config import Stream
from echelon.group.records import Profile
from echelon.keys import TokensKey
from echelon.members.admin import create_group
from echelon.members.events import Event, PartitionEnded, PartitionStarted
from echelon.members.member import Member
from echelon.model import Message


async def handle(message: Message) -> None:
    """Handlers of different keys wait side by side; those of one key, one after the other."""
    await asyncio.sleep(0.01)
    print(f"reading {message.subject} {message.data.decode()}", flush=True)


def tell(event: Event) -> None:
    """Partitions come and go; advisories of the group come here too."""
    match event:
        case PartitionStarted(partition, epoch, position):
            print(f"partition {partition} from {position} on, epoch {epoch}", flush=True)
        case PartitionEnded(partition):
            print(f"partition {partition} is given up", flush=True)


async def main() -> None:
    """Make the group if it is not there, and sit in it until SIGTERM or Ctrl-C."""
    async with open_broker(os.environ["ECHELON_URL"]) as broker:
        stream = Stream("SENSORS", 4, TokensKey("sensor.*.*", (1,)), "derived")
        await create_group(broker, "shared", [stream], start="earliest")
        await Member(broker, "shared", handle, Profile(f"process-{os.getpid()}"), on_event=tell).run(signals=True)


asyncio.run(main())
