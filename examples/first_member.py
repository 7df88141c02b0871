"""A member in ten lines: prints what it gets, until Ctrl-C, which drains.

$ echelon create first SENSORS --key 'tokens:sensor.*.*:1' --partitions 4 --start earliest
$ python examples/first_member.py
"""

import os

from echelon.group.records import Profile
from echelon.members.sync import join
from echelon.model import Message


async def handle(message: Message) -> None:
    """Process one message. The next one of the same key comes when this has returned."""
    print(message.partition, message.sequence, message.key, message.data, flush=True)


join(os.environ["ECHELON_URL"], "first", handle, Profile("anna"))
