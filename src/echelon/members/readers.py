"""The readers of a group's streams, each opened once."""

import asyncio

from echelon.brokers.base import Broker, Reader, StreamInfo
from echelon.group.config import Config, Stream


class Readers:
    """Opens readers as they are asked for. Used in the event loop's thread only."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group
        self._readers: dict[str, Reader] = {}
        self._opening = asyncio.Lock()

    async def of(self, config: Config, stream: Stream) -> Reader:
        """The reader of a stream."""
        async with self._opening:
            if stream.name not in self._readers:
                alone = len(config.streams) == 1
                self._readers[stream.name] = await self._broker.reader(self._group, stream, alone=alone)
        return self._readers[stream.name]

    async def of_partition(self, config: Config, partition: str) -> tuple[Reader, int]:
        """The reader of a partition's stream, and the partition's number in it."""
        stream, number = config.locate(partition)
        return await self.of(config, stream), number

    async def info(self, config: Config, stream: Stream) -> StreamInfo:
        """What a stream holds now."""
        return await (await self.of(config, stream)).info()
