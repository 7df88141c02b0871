"""What the partitions of a group hold now, asked of the broker."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from echelon.brokers.base import Broker, Reader
from echelon.errors import OutOfRange
from echelon.group.config import Config
from echelon.model import Bounds, partition_name
from echelon.ops.progress import Ends

_AT_ONCE: Final = 16
# How far to look for the first message from a position on: sequences of other partitions lie between.
_STEPS: Final = (1, 64, 4096)


async def readers(broker: Broker, group: str, config: Config) -> dict[str, Reader]:
    """A reader of each of the group's streams, by the stream's name."""
    alone = len(config.streams) == 1
    return {stream.name: await broker.reader(group, stream, alone=alone) for stream in config.streams}


async def read_bounds(broker: Broker, group: str, config: Config) -> dict[str, Bounds]:
    """What each partition of the group holds. Partitions that were added since it was configured are left out."""
    alone = len(config.streams) == 1
    found: dict[str, Bounds] = {}
    for name, reader in (await readers(broker, group, config)).items():
        held = {
            partition_name(name, number, alone=alone): each for number, each in (await reader.info()).bounds.items()
        }
        found |= {partition: each for partition, each in held.items() if partition in config.positions}
    return found


async def read_ends(broker: Broker, group: str, config: Config, positions: Mapping[str, int]) -> dict[str, Ends]:
    """What each of these partitions holds, and how much of it lies behind the position."""
    reading = await readers(broker, group, config)
    bounds = await read_bounds(broker, group, config)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(partition: str, position: int) -> Ends:
        stream, number = config.locate(partition)
        reader, held = reading[stream.name], bounds[partition]
        async with limit:
            lag = await reader.lag(number, position) if position < held.end else 0
            oldest = await _first_time(reader, number, max(position, held.first), held.end) if lag else None
        return Ends(held.first, held.end, lag, oldest)

    names = [name for name in positions if name in bounds]
    return dict(zip(names, await asyncio.gather(*(look(name, positions[name]) for name in names)), strict=True))


async def _first_time(reader: Reader, number: int, start: int, end: int) -> int | None:
    """The broker time of the partition's first message from `start` on, read with as few others as possible."""
    for far in (*_STEPS, end - start):
        stop = min(end, start + far)
        try:
            async with aclosing(reader.read(number, start, stop)) as parts:
                async for messages in parts:
                    if messages:
                        return messages[0].time
        except OutOfRange:  # The oldest messages went while this looked for them.
            return None
        if stop == end:
            break
    return None
