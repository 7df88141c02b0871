"""What an instance does now and then beside its partitions, for the broker's own tools and for the group."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from echelon.brokers.base import Broker, Log
from echelon.errors import EchelonError, Unreachable
from echelon.group.own import Own
from echelon.group.records import Configure, Record
from echelon.group.world import World
from echelon.members.growth import grown
from echelon.members.history import trim_history
from echelon.members.workbench import Workbench

logger = logging.getLogger(__name__)


class Chores:
    """The chores of one instance. `world` gives the world as it has read it; `send` writes a record to the log."""

    def __init__(
        self,
        broker: Broker,
        log: Log,
        group: str,
        bench: Workbench,
        own: Own,
        *,
        world: Callable[[], World],
        send: Callable[[Record], None],
    ) -> None:
        self._broker = broker
        self._log = log
        self._group = group
        self._bench = bench
        self._own = own
        self._world = world
        self._send = send
        self._told: dict[str, int] = {}
        self._trimmed = 0
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Do them every half interval, for ever."""
        while True:
            await asyncio.sleep(max(1.0, self._world().interval / 2000))
            await self.do()

    async def do(self) -> None:
        """Do each of them. What fails with an EchelonError keeps none of the others from being done.

        It is logged, once until it succeeds again.
        """
        group = self._group
        with self._logged(f"the backlog of {group} is not known"):
            await self._bench.look_at_backlog()
        await self._tell_broker()
        if self._world().chair() != self._own.id:
            return
        with self._logged(f"whether the streams of {group} have grown is not known"):
            await self._look_for_growth()
        with self._logged(f"old records of the log of {group} were not deleted"):
            await self._trim()

    async def _tell_broker(self) -> None:
        """Tell the broker's own tools the positions of this instance's partitions."""
        world = self._world()
        config = world.config
        assert config is not None
        mine = {p.name: p.position for p in world.owned(self._own.id) if self._told.get(p.name) != p.position}
        for stream in config.streams:
            positions = {name: at for name, at in mine.items() if config.locate(name)[0] == stream}
            if not positions:
                continue
            with self._logged(f"the broker was not told the positions of {self._group} in {stream.name}"):
                numbers = {config.locate(name)[1]: at for name, at in positions.items()}
                await self._broker.commit(self._group, stream, numbers)
                self._told.update(positions)

    async def _look_for_growth(self) -> None:
        """Write a new configuration if the streams have gained partitions; one instance does so for the group."""
        world = self._world()
        config, replaces = world.config, world.configured
        assert config is not None
        new = await grown(config, self._bench.info)
        if new is not None:
            world = self._world()
            self._send(
                Configure(group=world.identity, sender=self._own.id, read=world.sequence, config=new, replaces=replaces)
            )

    async def _trim(self) -> None:
        """Delete old records of the log, once for every snapshot; one instance does so for the group."""
        world = self._world()
        snapshot = world.snapshot
        if snapshot <= self._trimmed:
            return
        before, self._trimmed = self._trimmed, snapshot
        try:
            await trim_history(self._log, world)
        except Unreachable:
            self._trimmed = before  # Try again soon. What is not permitted is tried again with the next snapshot.
            raise

    @contextmanager
    def _logged(self, failure: str) -> Iterator[None]:
        try:
            yield
        except EchelonError as error:
            if failure not in self._failing:
                logger.warning("%s: %s", failure, error)
            self._failing.add(failure)
        else:
            self._failing.discard(failure)
