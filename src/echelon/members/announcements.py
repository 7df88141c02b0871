"""At most once: the announcement of what is about to be processed, and the wait until the group has read it."""

import asyncio
from collections.abc import Callable, Container

from echelon.group.own import Own, Run
from echelon.group.world import World


class Announcements:
    """What was announced and is not yet read back. Used in the event loop's thread only."""

    def __init__(self, own: Own, wake: Callable[[], None]) -> None:
        self._own = own
        self._wake = wake
        self._made: dict[str, tuple[Run, asyncio.Future[bool]]] = {}

    async def make(self, name: str, run: Run, end: int, world: World) -> bool:
        """Wait until the group has read that everything of a partition before `end` is about to be processed.

        False: it has not, and will not, since the partition drains.
        """
        partition = world.partitions[name]
        if partition.epoch == run.epoch and partition.position >= end:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._made[name] = (run, future)
        run.wanted = end
        self._wake()
        return await future

    def heard(self, world: World, running: Container[str]) -> None:
        """Something was read: who waits for it may go on. Nobody waits for partitions that are not `running`."""
        for name, (run, future) in list(self._made.items()):
            partition = world.partitions.get(name)
            if future.cancelled() or name not in running or partition is None:
                del self._made[name]
                continue
            over = partition.epoch != run.epoch
            accepted = not over and partition.position >= run.wanted
            if accepted or (run.state != "running" and (over or self._is_settled(run))):
                future.set_result(accepted)
                del self._made[name]

    def _is_settled(self, run: Run) -> bool:
        """Whether all that was sent before the run was to end is read back or lost: records are stored in order."""
        return self._own.lease is not None and self._own.lease > run.since
