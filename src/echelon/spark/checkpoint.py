"""A seat's checkpoint: where it is, and what becomes of it at a cut and at a reset if the pipeline keeps state.

Without state, the checkpoint only counts batches: every offset says itself where its batch begins, so the checkpoint
stays the same whatever happens. State has to go back when positions do: a cut keeps a copy of the checkpoint, and a
reset begins another generation, from that copy or from nothing.
"""

import logging
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct, field
from pyspark.sql import SparkSession

from echelon.errors import InvalidConfig
from echelon.group.world import Partition, World
from echelon.spark.file_sink import check_batches, check_seats
from echelon.spark.files import Files
from echelon.spark.output import SparkOutput
from echelon.spark.pipeline import Pipeline

logger = logging.getLogger(__name__)

_FILE: Final = "seat.json"


class Kept(Struct, frozen=True):
    """A copy of a checkpoint that was made at a cut, as the cut refers to it."""

    path: str
    partitions: tuple[str, ...]


class _Arrived(Struct, frozen=True):
    """What is known of a partition when it comes to the seat."""

    seated: int
    reset: int
    fresh: bool
    """Nothing of it was processed yet, by anybody."""
    kept: Kept | None
    restored: bool
    """Its last reset was to a cut."""


class _Seat(Struct):
    """What a seat with state remembers beside its checkpoint.

    Of each partition whose state it has: since which epoch it is this seat's, and its last reset.
    """

    generation: int = 0
    reset: int = 0
    """The last reset that the generation began after."""
    known: dict[str, tuple[int, int]] = field(default_factory=dict)


class Checkpoint:
    """The checkpoint of the seat that this instance holds."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, stateful: bool) -> None:
        self._pipeline = pipeline
        self.stateful = stateful
        self._files = Files(spark)
        self._home = ""
        self._arrived: dict[str, _Arrived] = {}
        self._copied: tuple[int, bytes] = (0, b"")

    def arrives(self, world: World, partition: Partition) -> bool:
        """A partition comes to the seat. Whether the query has to be run anew, with another state."""
        config = world.config
        assert config is not None
        group = f"{self._pipeline.group}-{world.identity[:8]}"
        home = f"{self._pipeline.checkpoint.rstrip('/')}/{group}/{partition.seat}"
        if home != self._home:
            self._home, self._arrived = home, {}
        cut = world.cuts.get(partition.restored)
        part = cut.parts.get(partition.name) if cut is not None else None
        state = part.state if part is not None else None
        fresh = partition.position == config.positions[partition.name]
        before = self._arrived.get(partition.name)
        self._arrived[partition.name] = _Arrived(
            partition.seated,
            partition.reset,
            fresh,
            msgspec.json.decode(state, type=Kept) if state is not None else None,
            bool(partition.restored),
        )
        return self.stateful and (before is None or before.reset < partition.reset)

    def leaves(self, name: str) -> None:
        """A partition leaves the seat."""
        self._arrived.pop(name, None)

    def prepare(self, world: World) -> str:
        """Where the query's checkpoint is. Blocks.

        Raises InvalidConfig if the state cannot follow the positions, or a file sink not the seats or the checkpoint.
        """
        sink = self._pipeline.sink
        if isinstance(sink, SparkOutput):
            assert world.config is not None
            # Seats may have been added since the instance came.
            check_seats(self._pipeline.group, sink, world.config)
        where = f"{self._home}/{self._generation(world.cuts) if self.stateful else 0}"
        if isinstance(sink, SparkOutput):
            check_batches(self._files, sink, where)
        return where

    def _generation(self, cuts: Collection[int]) -> int:
        """The generation that has the state of the partitions that the seat has now."""
        arrived = dict(self._arrived)
        found = _read(self._files, self._home)
        seat = found or _Seat()
        # What is fresh has no state anywhere, unless this seat had one before a reset.
        begun = {name: one for name, one in arrived.items() if name in seat.known or not one.fresh}
        changed = self._reset_since(seat, begun)
        _refuse_strangers(seat, {name: one for name, one in begun.items() if name not in changed})
        if changed:
            self._begin_again(seat, arrived, changed, whole=len(changed) == len(begun))
        known = seat.known | {name: (one.seated, one.reset) for name, one in arrived.items()}
        if found is None or known != seat.known:
            seat.known = known
            self._write(seat)
        self._clean(seat, cuts)
        return seat.generation

    def _reset_since(self, seat: _Seat, begun: dict[str, _Arrived]) -> list[str]:
        """The partitions that were reset since this seat last had them, and that no other seat has begun since then.

        A seat that has had a partition and done nothing has not begun it. And of a fresh one there is no state if all
        of this seat's state is from after the same reset.
        """
        found = {
            name: one.reset
            for name, one in begun.items()
            if seat.known.get(name, (0, 0))[1] < one.reset and not (one.fresh and one.reset <= seat.reset)
        }
        if not found:
            return []
        seats, _, own = self._home.rpartition("/")
        for member in self._files.names(seats):
            other = _read(self._files, f"{seats}/{member}") if member != own else None
            for name, (_, reset) in other.known.items() if other is not None else ():
                if found.get(name) == reset and not begun[name].fresh:
                    del found[name]
        return list(found)

    def _write(self, seat: _Seat) -> None:
        data = msgspec.json.encode(seat)
        for name in (f"{_FILE}.new", _FILE):
            self._files.write(f"{self._home}/{name}", data)

    def _clean(self, seat: _Seat, cuts: Collection[int]) -> None:
        """Delete the copies of cuts that are retired, and former generations."""
        needed = {str(cut) for cut in (*cuts, self._copied[0])}
        for name in self._files.names(f"{self._home}/cuts"):
            if name not in needed:
                self._files.delete(f"{self._home}/cuts/{name}")
        for name in self._files.names(self._home):
            if name.isdecimal() and int(name) < seat.generation:
                self._delete_generation(f"{self._home}/{name}")

    def _delete_generation(self, path: str) -> None:
        """Delete a checkpoint but for its state's schemas: Spark refers to these by whole paths, in copies too."""
        for name in self._files.names(path):
            if name != "state":
                self._files.delete(f"{path}/{name}")
        for operator in self._files.names(f"{path}/state"):
            for name in self._files.names(f"{path}/state/{operator}"):
                if name != "_stateSchema":
                    self._files.delete(f"{path}/state/{operator}/{name}")

    def _begin_again(self, seat: _Seat, arrived: dict[str, _Arrived], changed: list[str], *, whole: bool) -> None:
        """The next generation of the checkpoint: the copy that the cut refers to, or an empty one."""
        if not whole:
            raise InvalidConfig(
                f"partition {changed[0]} was reset and others of this seat were not: they share one state",
                remedy="Reset all partitions of the seat",
            )
        seat.generation += 1
        seat.reset = max(arrived[name].reset for name in changed)
        # Whoever died before it had written the seat down may have left half a copy.
        self._files.delete(f"{self._home}/{seat.generation}")
        kept = {arrived[name].kept for name in changed}
        copy = kept.pop() if len(kept) == 1 else None
        at_cut = {name for name, one in arrived.items() if one.kept == copy}
        if copy is not None and set(changed) <= set(copy.partitions) <= at_cut:
            self._files.copy(copy.path, f"{self._home}/{seat.generation}")
        elif any(arrived[name].restored for name in changed):
            logger.warning("the cut holds no state for just the partitions of this seat: its state begins empty")
        else:
            logger.warning("the state of this seat begins empty, as the reset asks for")

    def must_keep(self, world: World) -> bool:
        """Whether the checkpoint has to be copied before the seat can answer the cut under way."""
        return self.stateful and world.cut is not None and world.cut.sequence != self._copied[0] and bool(self._home)

    def keep(self, cut: int, world: World) -> None:
        """Copy the checkpoint for a cut. The query must have ended. Blocks."""
        path = f"{self._home}/cuts/{cut}"
        self._files.copy(self.prepare(world), path)
        self._copied = (cut, msgspec.json.encode(Kept(path, tuple(sorted(self._arrived)))))

    def kept_for(self, world: World) -> bytes | None:
        """What the cut under way refers to the copy by."""
        return self._copied[1] if world.cut is not None and world.cut.sequence == self._copied[0] else None


def _read(files: Files, home: str) -> _Seat | None:
    """What a seat remembers. One of the two files is whole, whenever somebody died."""
    for name in (_FILE, f"{_FILE}.new"):
        written = files.read(f"{home}/{name}")
        try:
            if written is not None:
                return msgspec.json.decode(written, type=_Seat)
        except msgspec.DecodeError:
            continue
    return None


def _refuse_strangers(seat: _Seat, begun: dict[str, _Arrived]) -> None:
    for name, one in begun.items():
        at_home = name in seat.known and seat.known[name][0] == one.seated
        if not at_home and not one.fresh:
            raise InvalidConfig(
                f"partition {name} comes from another seat, where the state of its keys stays",
                remedy="Reset the group to its initial positions or to a cut with this mapping, or map the partition "
                "back",
            )
