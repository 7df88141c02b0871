"""A plain function with retries and dead letters: what is no number is tried three times, then put aside.

$ echelon create checked SENSORS --partitions 4 --start earliest --on-failure dead_letter --set retries=2
$ python examples/sensors.py 0 --broken
$ python examples/dead_letters.py

`echelon dead list checked` lists what was put aside; `dead retry` and `dead skip` decide about it.
"""

import os

from echelon.group.records import Profile
from echelon.members.sync import join
from echelon.model import Message


def handle(message: Message) -> None:
    """What this raises is the message's failure. Meanwhile its key waits, and no other."""
    # In one piece: plain functions run in threads side by side.
    print(f"{message.subject} {float(message.data):.1f}\n", end="", flush=True)


join(os.environ["ECHELON_URL"], "checked", handle, Profile("checker"))
