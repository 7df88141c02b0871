"""A partition's share in a seat's query."""

from collections.abc import Callable

from echelon.group.own import Run
from echelon.group.world import Partition


class Share:
    """One partition in the query of a seat. All methods are called in the event loop's thread and do not block.

    What the share itself cannot do, the query's workbench does: `begin` when it is to be started, `end` when it takes
    no more part (with True: what it has under way must end now), `look` to bring its run up to date.
    """

    def __init__(
        self,
        run: Run,
        partition: Partition,
        *,
        begin: Callable[["Share"], None],
        end: Callable[["Share", bool], None],
        look: Callable[["Share"], None],
    ) -> None:
        self.run = run
        self.name = partition.name
        self.opening = False
        """Its sink is being asked where it stands."""
        self.announcing = False
        """The group is being told what is about to be processed of it."""
        self.resolved = False
        """It is known where it goes on: the query has told what its checkpoint knows."""
        self.passed_over = False
        """A batch that Spark repeated held a stretch of it, and it was not read: the checkpoint knows too much."""
        self._begin = begin
        self._end = end
        self._look = look

    def start(self, *, idle: bool) -> None:
        """Take part in the batches to come. `idle`: not yet, only find out where it stands."""
        self._begin(self)

    def stop(self, *, cancel: bool) -> None:
        """Take no more part. `cancel`: interrupt the batch under way, if it has part in it."""
        self._end(self, cancel)

    def update(self) -> None:
        """Bring the run up to date."""
        self._look(self)

    def count(self) -> int:
        """Nothing: Spark counts for the query as a whole."""
        return 0
