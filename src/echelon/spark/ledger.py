"""The batch that a seat's query has under way, and which of its stretches are this seat's to process."""

from collections.abc import Mapping

from echelon.group.config import Delivery
from echelon.group.world import World
from echelon.spark.batch import Offset, Stretch, first_position, offset, to_repeat
from echelon.spark.share import Share


class Ledger:
    """One batch at a time, as Spark has it. Used in the event loop's thread only.

    Exactly once, a sink says where each partition stands, not the checkpoint. `stateful`: a batch that Spark repeats
    must be read whole, since the state that it leads to is kept with it.
    """

    def __init__(self, shares: Mapping[str, Share], delivery: Delivery, *, stateful: bool) -> None:
        self._shares = shares
        self._exact = delivery == "exactly_once"
        self._repeats = delivery != "at_most_once"
        self._stateful = stateful
        self._offset: Offset | None = None
        self.parts: Offset = {}
        """What is being read of the batch under way."""

    def settle(self, start: Offset, world: World) -> bool:
        """Spark has committed everything up to `start`, and nothing is under way. Whether that ended a batch."""
        ended = self._offset is not None and self._offset == start
        parts, self.parts, self._offset = self.parts, {}, None
        if ended:
            for name, stretch in parts.items():
                share = self._shares.get(name)
                if share is not None and share.run.epoch == stretch.epoch:
                    share.run.position = max(share.run.position, stretch.end)
        self._resolve(start, world)
        return ended

    def _resolve(self, start: Offset, world: World) -> None:
        """Find out where those go on that came to the query since."""
        for name, share in self._shares.items():
            partition = world.partitions.get(name)
            if share.resolved or partition is None:
                continue
            share.resolved = True
            if not self._exact and not share.passed_over and partition.epoch == share.run.epoch:
                share.run.position = max(share.run.position, first_position(start.get(name), partition))

    def offer(self, stretches: Mapping[str, Stretch]) -> Offset:
        """A new batch of these stretches."""
        self._offset = self.parts = offset(stretches)
        return self._offset

    def plan(self, end: Offset, world: World) -> Offset:
        """What is to be read of the batch that ends at `end`: all, unless Spark repeats what an earlier run began."""
        if self._offset != end:
            self._offset = end
            self.parts = {name: mine for name, stretch in end.items() if (mine := self._repeat(name, stretch, world))}
        return self.parts

    def _repeat(self, name: str, stretch: Stretch, world: World) -> Stretch | None:
        share, partition = self._shares.get(name), world.partitions.get(name)
        if share is None or partition is None:
            return None
        if share.run.state != "running" or share.run.refused or partition.epoch != share.run.epoch:
            share.passed_over = True
            return None
        position = share.run.position
        if self._exact:
            wanted = share.run.ready and (position == stretch.begin or (self._stateful and position == stretch.end))
        else:
            wanted = self._repeats and to_repeat(stretch, partition, position)
        share.passed_over = not wanted
        if not wanted:
            return None
        share.resolved = True
        return Stretch(stretch.begin, stretch.end, share.run.epoch)

    def drop(self, world: World) -> None:
        """The query has ended: nothing is under way. What was announced counts, however it ended."""
        self._offset = None
        self.parts = {}
        for name, share in self._shares.items():
            partition = world.partitions.get(name)
            if partition is not None and partition.epoch == share.run.epoch and not self._exact:
                share.run.position = max(share.run.position, partition.position)
