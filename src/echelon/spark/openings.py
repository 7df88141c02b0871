"""The opening of a sink for each partition that comes to a seat, whether or not its query runs meanwhile."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from echelon.errors import Unreachable
from echelon.group.world import World
from echelon.members.sinks.base import Place
from echelon.spark.share import Share
from echelon.spark.sinks.base import BatchSink

logger = logging.getLogger(__name__)

_AGAIN: Final = 0.2
"""Seconds after which a sink that did not answer is asked again."""


class Openings:
    """What is being opened. Used in the event loop's thread only. `wake` is called when one is done."""

    def __init__(self, sink: BatchSink | None, group: str, wake: Callable[[], None]) -> None:
        self.failure: Exception | None = None
        """Why a partition cannot be opened at all."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._sink = sink
        self._group = group
        self._wake = wake

    def begin(self, share: Share, world: World) -> None:
        """Have the sink told of the share's epoch, and the share where the sink stands. Without a sink, nothing."""
        if self._sink is not None and not share.opening:
            share.opening = True
            task = asyncio.ensure_future(self._open(self._sink, share, world))
            self.tasks.add(task)
            task.add_done_callback(self._note_end)

    async def _open(self, sink: BatchSink, share: Share, world: World) -> None:
        while True:
            try:
                await open_sink(sink, self._group, world, share)
            except Unreachable as error:
                logger.warning("%s; trying again", error)
                await asyncio.sleep(_AGAIN)
            else:
                share.opening = False
                return

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.failure = error
        self._wake()


async def open_sink(sink: BatchSink, group: str, world: World, share: Share) -> None:
    """Write the share's epoch into the sink; the run is then ready at the sink's position, or refused.

    Raises Unreachable, NotReversible, GroupExists.
    """
    partition = world.partitions.get(share.name)
    if partition is None or partition.epoch != share.run.epoch:
        return
    place = Place(group, world.identity, world.made, share.name)
    position = await sink.open(
        place, epoch=partition.epoch, reset=partition.reset, position=share.run.position, keep=partition.keep
    )
    if position is None:
        share.run.refused = True
    else:
        share.run.position = position
        share.run.ready = True
