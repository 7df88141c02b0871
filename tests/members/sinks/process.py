"""A real process that owns a partition: opens its epoch and processes batches until it is done, killed or fenced off.

Run as `python -m tests.members.sinks.process <json>`; the JSON is a `Task`. It says `open` when it has begun.
"""

import asyncio
import sys

import msgspec

from tests.members.sinks.harnesses import make_harness
from tests.members.sinks.owner import Owner


class Task(msgspec.Struct, frozen=True):
    """What the process is to do."""

    kind: str
    address: str
    name: str
    epoch: int
    end: int


async def own(task: Task) -> None:
    """Process up to the end."""
    harness = make_harness(task.kind, task.address, task.name)
    async with harness.sink() as sink:
        owner = Owner(harness, sink, task.epoch)
        if await owner.open() is not None:
            print("open", flush=True)  # noqa: T201 - for the test that waits for it
            await owner.work(task.end)


if __name__ == "__main__":
    asyncio.run(own(msgspec.json.decode(sys.argv[1], type=Task)))
