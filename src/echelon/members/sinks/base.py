"""What an exactly-once sink must do. The rules themselves are pure, in `echelon.group.delivery`."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct

Target = TypeVar("Target")


class Place(Struct, frozen=True):
    """A partition of a group, as a sink knows it.

    A group that is made anew under the same name has another identity, and is `made` later by the broker's time: the
    sink gives it the place of the earlier one, which it refuses from then on.
    """

    group: str
    identity: str
    made: int
    partition: str


class Transaction(Protocol):
    """One batch of a partition. Leaving its context without `commit` undoes everything."""

    @property
    def target(self) -> Any:  # noqa: ANN401 - each sink has its own
        """What the handler writes its results to, as second argument: a database cursor, an outbox."""
        ...

    async def commit(self, end: int) -> bool:
        """Make the results, and `end` as the position, visible together.

        False: refused, another owner has opened a later epoch or the sink does not stand where the batch begins.
        Raises Unreachable if there is no answer: it may be done or not. Raises what else the sink has against the
        results (TooLarge, StreamNotFound, a database's own errors): nothing was done.
        """
        ...


class Sink(Protocol):
    """A sink for one group. Entered once by each member as an async context manager; leaving it closes connections."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exception: object) -> None: ...

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on; None if the sink holds a later epoch.

        `reset` is the sequence of the partition's last reset, `position` the log's position. Where the log's
        position wins (`delivery.open_epoch`), what lies past it is taken back in the same transaction, unless
        `keep`. Raises NotReversible if it would have to be and the sink cannot, GroupExists if the sink belongs to a
        group of the same name that was made later, Unreachable.
        """
        ...

    def transaction(self, place: Place, *, epoch: int, begin: int) -> AbstractAsyncContextManager[Transaction]:
        """Begin a batch at `begin` under `epoch`.

        Batches of one partition follow each other; those of several partitions may be under way at the same time.
        """
        ...


class Batch(Generic[Target]):
    """A transaction whose `commit` is a function of the sink's."""

    def __init__(self, target: Target, commit: Callable[[int], Awaitable[bool]]) -> None:
        self.target = target
        self._commit = commit

    async def commit(self, end: int) -> bool:
        """Make the results, and `end` as the position, visible together, as `Transaction.commit` describes it."""
        return await self._commit(end)
