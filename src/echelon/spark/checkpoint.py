"""A seat's checkpoint: where it is, and what becomes of it at a cut and at a reset if the pipeline keeps state.

Without state, the checkpoint only counts batches: every offset says itself where its batch begins, so the checkpoint
stays the same whatever happens. State has to go back when positions do: a cut keeps a copy of the checkpoint, and a
reset begins another generation, from that copy or from nothing.
"""

import logging
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from pyspark.sql import SparkSession

from echelon.errors import InvalidConfig
from echelon.group.world import Partition, World
from echelon.spark.pipeline import Pipeline

logger = logging.getLogger(__name__)

_FILE: Final = "seat.json"


class Kept(Struct, frozen=True):
    """A copy of a checkpoint that was made at a cut, as the cut refers to it."""

    path: str
    partitions: tuple[str, ...]


class _Arrived(Struct, frozen=True):
    """What is known of a partition when it comes to the seat."""

    reset: int
    fresh: bool
    """Nothing of it was processed yet, by anybody."""
    kept: Kept | None


class _Seat(Struct):
    """What a seat with state remembers beside its checkpoint: the generation, and the last reset of each partition."""

    generation: int = 0
    resets: dict[str, int] = field(default_factory=dict)


class Checkpoint:
    """The checkpoint of the seat that this instance holds."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, stateful: bool) -> None:
        self._pipeline = pipeline
        self._stateful = stateful
        self._files = _Files(spark)
        self._home = ""
        self._path = ""
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
        state = world.saved_state(partition)
        fresh = partition.position == config.positions[partition.name]
        before = self._arrived.get(partition.name)
        self._arrived[partition.name] = _Arrived(
            partition.reset, fresh, msgspec.json.decode(state, type=Kept) if state is not None else None
        )
        return self._stateful and (before is None or before.reset < partition.reset)

    def prepare(self) -> str:
        """Where the query's checkpoint is. Blocks. Raises InvalidConfig if the state cannot follow the positions."""
        if not self._stateful:
            return f"{self._home}/0"
        written = self._files.read(f"{self._home}/{_FILE}")
        seat = msgspec.json.decode(written, type=_Seat) if written is not None else _Seat()
        changed = [name for name, one in self._arrived.items() if seat.resets.get(name, 0) < one.reset]
        if written is not None and not changed:
            self._refuse_strangers(seat)
        if changed and written is not None:
            self._begin_again(seat, changed)
        seat.resets |= {name: one.reset for name, one in self._arrived.items()}
        self._files.write(f"{self._home}/{_FILE}", msgspec.json.encode(seat))
        self._path = f"{self._home}/{seat.generation}"
        return self._path

    def _refuse_strangers(self, seat: _Seat) -> None:
        for name, one in self._arrived.items():
            if name not in seat.resets and not one.fresh:
                raise InvalidConfig(
                    f"partition {name} comes from another seat, where the state of its keys stays",
                    remedy="Reset the group to its initial positions or to a cut with this mapping, or map the "
                    "partition back",
                )

    def _begin_again(self, seat: _Seat, changed: list[str]) -> None:
        """The next generation of the checkpoint: the copy that the cut refers to, or an empty one."""
        if set(changed) != set(self._arrived):
            raise InvalidConfig(
                f"partition {changed[0]} was reset and others of this seat were not: they share one state",
                remedy="Reset all partitions of the seat",
            )
        seat.generation += 1
        kept = {self._arrived[name].kept for name in changed}
        copy = kept.pop() if len(kept) == 1 else None
        if copy is not None and set(copy.partitions) == set(changed):
            self._files.copy(copy.path, f"{self._home}/{seat.generation}")
        elif copy is not None or kept:
            logger.warning("the cut was taken with other partitions on this seat: its state begins empty")
        else:
            logger.warning("the state of this seat begins empty, as the reset asks for")

    def must_keep(self, world: World) -> bool:
        """Whether the checkpoint has to be copied before the seat can answer the cut under way."""
        return self._stateful and world.cut is not None and world.cut.sequence != self._copied[0] and bool(self._home)

    def keep(self, cut: int) -> None:
        """Copy the checkpoint for a cut. The query must have ended. Blocks."""
        path = f"{self._home}/cuts/{cut}"
        self._files.copy(self._path or self.prepare(), path)
        self._copied = (cut, msgspec.json.encode(Kept(path, tuple(sorted(self._arrived)))))

    def kept_for(self, world: World) -> bytes | None:
        """What the cut under way refers to the copy by."""
        return self._copied[1] if world.cut is not None and world.cut.sequence == self._copied[0] else None


class _Files:
    """Files wherever Hadoop can reach them, through Spark's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        self._settings: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place

    def read(self, path: str) -> bytes | None:
        """What a file holds; None if there is none."""
        system, place = self._at(path)
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Write a file, whether or not there is one."""
        system, place = self._at(path)
        stream = system.create(place, True)  # noqa: FBT003 - Java has no names for arguments
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def copy(self, source: str, target: str) -> None:
        """Copy a folder to where there is none; what an interrupted copy left there is deleted first."""
        system, place = self._at(target)
        system.delete(place, True)  # noqa: FBT003 - the same
        if self._at(source)[0].exists(self._at(source)[1]):
            copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
            copy(*self._at(source), system, place, False, self._settings)  # noqa: FBT003 - the same
