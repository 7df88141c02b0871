"""Exactly once: runs of messages whose results and position a sink commits together."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from echelon.errors import TooLarge, Unreachable
from echelon.group.world import Partition, World
from echelon.members.handlers import Call, Handler, check_result
from echelon.members.sinks.base import Place, Sink, Transaction
from echelon.model import Message

logger = logging.getLogger(__name__)

_RETRY: Final = 0.2


class Refused(Exception):
    """The sink holds a later epoch."""


class Transactor:
    """One partition's transactions under one epoch. `position` is where the sink stands, as far as is known."""

    def __init__(self, sink: Sink, group: str, world: World, partition: Partition, call: Call, pool: Executor) -> None:
        self.position = partition.position
        self.refused = False
        """The sink holds a later epoch: this owner is not the partition's any more, or will get a higher one."""
        self._sink = sink
        self._place = Place(group, world.identity, world.made, partition.name)
        self._epoch = partition.epoch
        self._reset = partition.reset
        self._keep = partition.keep
        self._call = call
        self._pool = pool

    async def open(self) -> None:
        """Write the epoch into the sink and learn where it stands. Raises Refused, NotReversible, Unreachable."""
        position = await self._sink.open(
            self._place, epoch=self._epoch, reset=self._reset, position=self.position, keep=self._keep
        )
        if position is None:
            self.refused = True
            raise Refused
        self.position = position

    async def open_at_last(self) -> None:
        """Open as soon as the sink can be reached: that it is away is no failure. Raises Refused, NotReversible."""
        while True:
            try:
                return await self.open()
            except Unreachable as error:
                logger.warning("the sink cannot be reached: %s; trying again", error)
                await asyncio.sleep(_RETRY)

    async def process(self, messages: Sequence[Message]) -> None:
        """Let the handler write its results for these messages, and commit them with the position after them.

        After a refused or unanswered commit the epoch is opened again, which tells what was done. Raises what
        the handler raises, and Refused.
        """
        end = messages[-1].sequence + 1
        while self.position < end:
            left = [message for message in messages if message.sequence >= self.position]
            try:
                async with self._sink.transaction(self._place, epoch=self._epoch, begin=self.position) as transaction:
                    await self._handle(left, transaction)
                    done = await transaction.commit(end)
            except Unreachable:
                done = False
            except TooLarge:
                if len(left) == 1:
                    raise
                await self.process(left[: len(left) // 2])
                continue
            if done:
                self.position = end
            else:
                await self.open_at_last()

    async def _handle(self, messages: list[Message], transaction: Transaction) -> None:
        handler, target = self._call.handler, transaction.target
        if self._call.waits:
            for message in messages:
                await handler(message, target)
        else:
            await asyncio.get_running_loop().run_in_executor(self._pool, _handle_all, handler, messages, target)


def _handle_all(handler: Handler, messages: list[Message], target: object) -> None:
    for message in messages:
        check_result(handler(message, target))
