"""A group whose handler gives up on two messages."""

import asyncio
from typing import Final

from echelon.testing.contract import Sent
from tests.cli.place import Place

BY_KEY: Final = {f"k{key}": [str(key), str(key + 8), str(key + 16)] for key in range(8)} | {"k4": ["3", "12", "20"]}
"""The data of its messages, by key. Those of k3 and k4 begin with one that a handler fails at."""


def failing(place: Place, on_failure: str, *, times: int) -> str:
    """A group with a member that fails so many times, at the first messages of k3 and k4."""
    stream = place.stream()
    group = place.group(stream, "--on-failure", on_failure, "--set", "retries=0")
    sent = [Sent(key, data[turn].encode()) for turn in range(3) for key, data in BY_KEY.items()]
    asyncio.run(place.harness.publish(stream, sent))
    place.launch(group, f"{group}-a", fail="3", failures=times)
    return group
