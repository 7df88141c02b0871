"""How fast groups work: their lag, and the messages that they processed between two looks."""

from collections.abc import Sequence

from msgspec import Struct

from echelon.brokers.base import Broker
from echelon.errors import BrokerError, GroupError, GroupNotFound
from echelon.group.world import World
from echelon.members.follower import read_world
from echelon.ops.ends import read_ends, readers
from echelon.ops.listing import list_groups, suggestion
from echelon.ops.status import GroupRow


class RateRow(Struct, frozen=True, kw_only=True):
    """A group at work. `rate` is in messages a second, since the last look."""

    group: str
    kind: str
    state: str
    active: int | None
    standby: int | None
    partitions: int | None
    idle: int | None
    lag: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None


class Rates:
    """Looks at groups again and again, and remembers where they were."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, dict[str, int]]] = {}

    async def look(
        self, broker: Broker, now: int, only: Sequence[str] = (), native: Sequence[GroupRow] = ()
    ) -> list[RateRow]:
        """All groups on the broker and these native ones, or only some; `now` is the observer's clock.

        Raises GroupNotFound, with the names that look alike, if one of those is not there.
        """
        found = [*await list_groups(broker, now), *native]
        names = [row.group for row in found]
        for name in only:
            if name not in names:
                raise GroupNotFound(f"there is no group {name}", remedy=suggestion(name, names, "ls"))
        rows = [row for row in found if not only or row.group in only]
        return [await self._rate(broker, row, now) for row in rows]

    async def _rate(self, broker: Broker, row: GroupRow, now: int) -> RateRow:
        same = {
            name: getattr(row, name) for name in ("group", "kind", "state", "active", "standby", "partitions", "idle")
        }
        if row.kind != "echelon":
            return RateRow(**same, lag=row.pending)
        try:
            world, _ = await read_world(await broker.log(row.group))
            assert world.config is not None
            positions = {name: partition.position for name, partition in world.partitions.items()}
            ends = await read_ends(broker, row.group, world.config, positions)
            done = await self._processed(broker, row.group, world, positions)
        except (GroupError, BrokerError):  # It was just deleted, or its streams were.
            return RateRow(**same)
        before, _ = self._last.get(row.group, (now, {}))
        self._last[row.group] = (now, positions)
        oldest = min((each.oldest for each in ends.values() if each.oldest is not None), default=None)
        return RateRow(
            **same,
            lag=sum(each.lag for each in ends.values()),
            lag_seconds=0.0 if oldest is None else round(max(0, now - oldest) / 1000, 1),
            rate=round(done * 1000 / (now - before), 1) if now > before else None,
        )

    async def _processed(self, broker: Broker, group: str, world: World, positions: dict[str, int]) -> float:
        """How many messages lie between the positions at the last look and these.

        Where readers compute the partition, about so many: all partitions are taken to have the same share.
        """
        config = world.config
        assert config is not None
        _, before = self._last.get(group, (0, {}))
        reading = await readers(broker, group, config)
        done = 0.0
        for name, position in positions.items():
            if before.get(name, position) < position:
                stream, number = config.locate(name)
                reader = reading[stream.name]
                if stream.partitioning == "computed":
                    done += (position - before[name]) / stream.partitions
                else:
                    # Messages that come between the two answers must not make it negative.
                    done += max(0, await reader.lag(number, before[name]) - await reader.lag(number, position))
        return done
