"""A process that asks a Kafka everything that members ask, again and again: python -m tests.brokers.kafka.asking URL.

It writes a line with the time for each round that was answered.
"""

import asyncio
import sys
import time

from echelon.brokers.kafka import KafkaBroker
from echelon.errors import Unreachable
from echelon.group.config import Stream
from echelon.keys import RecordKey


async def ask(url: str, topic: str) -> None:
    async with KafkaBroker(url, timeout=1) as broker:
        stream = await broker.prepare("asking", Stream(topic, 1, RecordKey(), "native"))
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(broker.commit("asking", stream, {0: 1}))
                    tasks.create_task(broker.prepare("asking", stream))
                    tasks.create_task(broker.groups())
                    tasks.create_task((await broker.reader("asking", stream)).lag(0, 0))
                await broker.committed("asking", stream)
            except* Unreachable:
                await asyncio.sleep(0.05)
            else:
                sys.stdout.write(f"{time.monotonic()}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(ask(*sys.argv[1:]))
