"""Many messages at a time: the handler gets lists, each of one partition and in order.

$ echelon create batched SENSORS --partitions 4 --start earliest
$ python examples/batches.py
"""

import os

from echelon.group.records import Profile
from echelon.members.options import Options
from echelon.members.sync import join
from echelon.model import Message


def handle(messages: list[Message]) -> None:
    """The position passes the batch when this has returned. If it raises, they are tried one by one."""
    mean = sum(float(message.data) for message in messages) / len(messages)
    # In one piece: plain functions run in threads side by side.
    print(f"{len(messages)} readings, mean {mean:.1f}\n", end="", flush=True)


join(os.environ["ECHELON_URL"], "batched", handle, Profile("batches"), options=Options(batch=True, batch_size=50))
