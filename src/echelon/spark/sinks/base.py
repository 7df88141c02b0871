"""What an exactly-once sink of a Spark seat must do. The rules themselves are pure, in `echelon.group.delivery`."""

from collections.abc import Sequence
from typing import Protocol, Self

from msgspec import Struct
from pyspark.sql import DataFrame

from echelon.members.sinks.base import Place


class Part(Struct, frozen=True):
    """What a micro-batch holds of one partition: its messages from `begin` up to `end`, under `epoch`."""

    place: Place
    epoch: int
    begin: int
    end: int


class BatchSink(Protocol):
    """A sink for the micro-batches of one seat. Entered once, in its event loop; leaving it closes connections."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exception: object) -> None: ...

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on; None if the sink holds a later epoch.

        The contract is that of `echelon.members.sinks.base.Sink.open`.
        """
        ...

    def write(self, frame: DataFrame, parts: Sequence[Part]) -> bool:
        """Make the batch's results, and the end of each part as its position, visible together.

        Blocks, and is called in a thread that is not the event loop's; only in this thread may Spark be called, so that
        its jobs are cancelled with the query. A sink that cannot do all parts in one
        transaction does one after the other; each part's results are then told by the column `partition`.
        False: refused, for at least one part another owner has opened a later epoch or the sink does not stand where
        the part begins; parts that were committed stay so. Raises Unreachable if there is no answer, and what else
        the sink has against the results. In all these cases the seat opens its epochs again, which tells what was done.
        """
        ...
