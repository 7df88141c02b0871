"""Exactly once: what a database must do so that each message has its effect in it once, whoever processes it.

The results of a message and its sequence, which is a unique key, are prepared in one transaction; then the message is
acknowledged, and the server's answer awaited; then the transaction is committed. The key makes it safe: also an
instance that was superseded gets its acknowledgement answered, but its commit finds the sequence taken.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self

from msgspec import Struct

from echelon.errors import InvalidConfig


class Committed(InvalidConfig):
    """A handler has committed by itself. The member ends: a part of the message's effect may be in the database."""


class Source(Struct, frozen=True):
    """Where messages come from, and who processes them.

    `name` is of the group; in a static one, of the member, whose consumer knows what is acknowledged. `identity`
    changes when the stream is made anew: sequences begin again then. `seat` is of the member.
    """

    name: str
    identity: str
    seat: str


class Ledger(Protocol):
    """A database. Entered once by each instance as an async context manager; leaving it closes its connection."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exception: object) -> None: ...

    async def take_over(self, source: Source, is_acknowledged: Callable[[int], Awaitable[bool]]) -> None:
        """Resolve what former instances of the member have prepared, before this one processes anything.

        What is acknowledged is committed. What is not will be delivered again, and is rolled back then, not
        before: only who has the message may take back what another has prepared of it. Raises Unreachable.
        """
        ...

    async def process(
        self,
        source: Source,
        sequence: int,
        work: Callable[[Any], Awaitable[None]],
        acknowledge: Callable[[], Awaitable[None]],
    ) -> None:
        """Let `work` write the results of a message, prepare, acknowledge, commit.

        If the message's results are there already, it is only acknowledged. Raises what `work` raises, with nothing
        done; and Unreachable if the database or the server of the messages does not answer: the message will be
        delivered again, or is resolved by `take_over`.
        """
        ...
