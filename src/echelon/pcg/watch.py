"""The configuration of a group as it changes."""

import asyncio
from typing import Final

from echelon.errors import GroupDeleted, GroupError, GroupNotFound, StreamNotFound, Unreachable
from echelon.pcg.config import ElasticConfig, GroupConfig
from echelon.pcg.found import Found
from echelon.pcg.groups import Groups

_LOOK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1


class Watch:
    """Follows a group's entry. `found` is the group as it was last read; `changed` is set when it is another one.

    `end` is why the group cannot be consumed any more.
    """

    def __init__(self, groups: Groups, found: Found) -> None:
        self.found = found
        self.changed = asyncio.Event()
        self.end: GroupError | None = None
        self._groups = groups

    async def run(self) -> None:
        """Follow the entry for ever. Raises GroupDeleted; GroupError if something changed that may not."""
        found = self.found
        bucket, key = self._groups.bucket(found.kind), f"{found.stream}.{found.name}"
        while True:
            try:
                async with bucket.watch(key, found.revision) as deliveries:
                    while True:
                        # Also when nothing is delivered: the bucket itself may be gone, or another one.
                        await self.look()
                        await deliveries.take(_LOOK_SECONDS)
            except StreamNotFound:
                await self.look()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def look(self) -> None:
        """Read the entry. Raises as `run`; that nobody answers is no news."""
        old = self.found
        try:
            new = await self._groups.get(old.stream, old.name, old.kind)
        except GroupNotFound:
            self.end = GroupDeleted(
                f"the group {old.name} on the stream {old.stream} was deleted",
                remedy="If only its entry was: create it as it was, and its members go on where they were",
            )
            raise self.end from None
        except (Unreachable, StreamNotFound):
            return
        if new.revision == old.revision:
            return
        if _fixed(new.config) != _fixed(old.config):
            self.end = GroupError(
                f"the {old.kind} group {old.name} on the stream {old.stream} was changed in a way that is not allowed",
                remedy="Stop all its instances, delete it and make it anew",
            )
            raise self.end
        self.found = new
        self.changed.set()


def _fixed(config: GroupConfig) -> object:
    """What must not change."""
    if isinstance(config, ElasticConfig):
        return (config.max_members, config.partitioning_filters, config.max_buffered_msgs, config.max_buffered_bytes)
    return (config.max_members, config.filters, sorted(config.members), config.member_mappings)
