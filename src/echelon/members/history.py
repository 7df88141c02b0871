"""The end of a log's old records: what a snapshot makes superfluous goes once it is older than the group's history."""

from typing import Final

from echelon.brokers.base import Log
from echelon.group.world import HORIZON, World, milliseconds

_PIECE: Final = 4096


async def trim_history(log: Log, world: World) -> int:
    """Delete the records that nobody needs any more; the sequence before which they were, or 0 if there are none.

    They lie before the as-of of the newest snapshot that counts, which stays, and are older than `history`, by the
    broker's time. Raises Unreachable, Denied, GroupNotFound.
    """
    config = world.config
    if config is None or not world.snapshot:
        return 0
    oldest = world.broker_time - max(milliseconds(config.history), HORIZON * world.interval)
    start = (await log.bounds()).first
    before = 0
    while start < world.snapshot:
        end = min(start + _PIECE, world.snapshot)
        entries = await log.read(start, end)
        young = next((entry.sequence for entry in entries if entry.time >= oldest), None)
        if young is not None:
            before = young if young > entries[0].sequence else before
            break
        start = before = end
    if before:
        await log.trim(before)
    return before
