"""The streams that a query reads without a seat, as its driver sees them: where they are and what they hold."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from echelon.errors import InvalidConfig, OutOfRange
from echelon.members.follower import read_world
from echelon.model import Bounds, partition_name, partition_order
from echelon.spark import process
from echelon.spark.limits import spread
from echelon.spark.offsets import Place
from echelon.spark.options import Options
from echelon.spark.process import Where
from echelon.spark.ranges import Range, Slice, slices

# A broker's reader reads on behalf of a group; of this one there is nothing but the name.
_NO_GROUP: Final = "echelon"


class Held(Struct, frozen=True):
    """What the partitions hold now, by name, and the identity of the stream if it is read without a group."""

    bounds: Mapping[str, Bounds]
    identity: str

    @property
    def firsts(self) -> dict[str, int]:
        """The oldest sequence of each partition."""
        return {name: bounds.first for name, bounds in self.bounds.items()}

    @property
    def ends(self) -> dict[str, int]:
        """One past the newest sequence of each partition."""
        return {name: bounds.end for name, bounds in self.bounds.items()}


class Streams(Struct, frozen=True):
    """The streams of a query. `initial` has the positions that the group was made with; empty without a group."""

    wheres: tuple[Where, ...]
    initial: Mapping[str, int]

    async def held(self) -> Held:
        """What is there now. Raises OutOfRange if a stream of the group was made anew, StreamNotFound, Unreachable."""
        held: dict[str, Bounds] = {}
        identity = ""
        for where in self.wheres:
            info = await (await process.reader(where)).info()
            named = {partition_name(where.stream.name, n, alone=where.alone): each for n, each in info.bounds.items()}
            if not self.initial:
                identity = info.identity
            elif info.identity != where.stream.identity:
                raise made_anew(where, named, self.initial)
            held.update((name, each) for name, each in named.items() if not self.initial or name in self.initial)
        return Held(held, identity)

    async def positions_at(self, place: Place, held: Held) -> dict[str, int]:
        """The position of every partition at a place. Raises InvalidConfig if positions do not name each one."""
        match place:
            case "earliest":
                return held.firsts
            case "latest":
                return held.ends
            case int():
                return {name: await self._position_at(name, place) for name in held.bounds}
        wrong = sorted(set(held.bounds) ^ set(place), key=partition_order)
        if wrong:
            raise InvalidConfig(
                f"positions must name each partition once; {wrong[0]} is missing or is not one",
                remedy=f"The partitions are {', '.join(sorted(held.bounds, key=partition_order))}",
            )
        return dict(place)

    def spreads(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Over how many partitions the sequences of each of these partitions are spread."""
        return {name: spread(self.find(name)[0].stream) for name in positions}

    def slices(self, begins: Mapping[str, int], ends: Mapping[str, int], tasks: int) -> list[Slice]:
        """What the tasks have to read from `begins` to `ends`."""
        ranges: dict[Where, list[Range]] = {where: [] for where in self.wheres}
        for name in sorted(ends, key=partition_order):
            where, number = self.find(name)
            ranges[where].append(Range(name, number, begins[name], ends[name]))
        return [part for where, wanted in ranges.items() for part in slices(where, wanted, tasks)]

    def find(self, partition: str) -> tuple[Where, int]:
        """Where a partition is, and its number there."""
        stream, _, number = partition.rpartition("/")
        return next(where for where in self.wheres if where.alone or where.stream.name == stream), int(number)

    async def _position_at(self, partition: str, time: int) -> int:
        where, number = self.find(partition)
        return await (await process.reader(where)).position_at(number, time)


async def open_streams(options: Options) -> Streams:
    """The streams that the options name.

    Raises GroupNotFound, StreamNotFound, NotPartitionable, InvalidConfig, Unreachable, Denied.
    """
    broker = await process.broker(options.access)
    if options.stream is not None:
        prepared = await broker.prepare(_NO_GROUP, options.stream)
        return Streams((Where(options.access, _NO_GROUP, prepared),), {})
    world, _ = await read_world(await broker.log(options.group))
    config = world.config
    assert config is not None, "a world that was read has a configuration"
    alone = len(config.streams) == 1
    return Streams(
        tuple(Where(options.access, options.group, stream, alone) for stream in config.streams), config.positions
    )


def made_anew(where: Where, bounds: Mapping[str, Bounds], positions: Mapping[str, int]) -> OutOfRange:
    """The error for a stream that is not the one that positions are of."""
    name, held = next(iter(bounds.items()))
    return OutOfRange(
        f"the stream {where.stream.name} was made anew",
        partition=name,
        position=positions.get(name, 0),
        first=held.first,
        end=held.end,
        remedy="Start a query with a new checkpoint; a group has to be made anew too",
    )
