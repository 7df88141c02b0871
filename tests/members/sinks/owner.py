"""An owner of a partition, as the protocol has it: opens its epoch, processes batches, opens again when in doubt."""

import asyncio
import random

from echelon.errors import Unreachable
from echelon.members.sinks.base import Place, Sink
from tests.members.sinks.harnesses import SinkHarness


class Owner:
    """Owns a partition under one epoch. `position` is where the sink stood when it was last known."""

    def __init__(
        self, harness: SinkHarness, sink: Sink, epoch: int, where: Place | None = None, *, reset: int = 0
    ) -> None:
        self.harness = harness
        self.sink = sink
        self.epoch = epoch
        self.place = where or harness.place()
        self.reset = reset
        self.position = 0

    async def open(self, position: int = 0, *, keep: bool = False) -> int | None:
        """Open the epoch; `position` is the log's."""
        found = await self.sink.open(self.place, epoch=self.epoch, reset=self.reset, position=position, keep=keep)
        if found is not None:
            self.position = found
        return found

    async def commit(self, end: int, *, begin: int | None = None) -> bool:
        """One batch up to `end`, handled in another thread as a plain handler is."""
        begin = self.position if begin is None else begin
        async with self.sink.transaction(self.place, epoch=self.epoch, begin=begin) as transaction:
            await asyncio.to_thread(self._handle, transaction.target, begin, end)
            done = await transaction.commit(end)
        if done:
            self.position = end
        return done

    async def work(self, end: int, most: int = 5) -> bool:
        """Process batches up to `end`; opens again after a refused or unanswered commit. False: fenced off."""
        while self.position < end:
            try:
                done = await self.commit(min(end, self.position + random.randint(1, most)))
                if not done and await self.open() is None:
                    return False
            except Unreachable:
                if not await self.open_again():
                    return False
        return True

    async def open_again(self) -> bool:
        """Open the epoch as soon as the sink can be reached. False: fenced off."""
        while True:
            try:
                return await self.open() is not None
            except Unreachable:
                await asyncio.sleep(0.05)

    def _handle(self, target: object, begin: int, end: int) -> None:
        for sequence in range(begin, end):
            self.harness.write(target, self.place.partition, sequence)
