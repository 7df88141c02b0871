"""A seat's checkpoint, if the pipeline keeps state: state and positions fit, or the seat does not start."""

import pytest
from msgspec import structs
from pyspark.sql import DataFrame

from echelon.errors import InvalidConfig
from echelon.group.config import Config, Stream
from echelon.group.world import Cut, Part, Partition, World
from echelon.spark import checkpoint
from echelon.spark.checkpoint import Checkpoint
from echelon.spark.output import SparkOutput
from echelon.spark.pipeline import Pipeline


class Disk:
    """Files in memory, under whole paths."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def names(self, path: str) -> list[str]:
        return sorted(
            {each.removeprefix(f"{path}/").split("/")[0] for each in self.files if each.startswith(f"{path}/")}
        )

    def delete(self, path: str) -> None:
        self.files = {each: data for each, data in self.files.items() if not each.startswith(f"{path}/")}

    def copy(self, source: str, target: str) -> None:
        self.delete(target)
        found = {each: data for each, data in self.files.items() if each.startswith(f"{source}/")}
        self.files |= {target + each.removeprefix(source): data for each, data in found.items()}


class Seats:
    """A group of two partitions, and instances that take its seats one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = Disk()
        self.pipeline = PIPELINE
        monkeypatch.setattr(checkpoint, "Files", lambda _: self.disk)
        self.world = World(identity="0123456789")
        self.world.config = CONFIG
        for name in ("0", "1"):
            self.world.partitions[name] = Partition(name, 1, 1, seat="m1", seated=5)

    def come(self, seat: str = "m1") -> Checkpoint:
        """Whoever gets the seat, with its partitions."""
        found = Checkpoint(object(), self.pipeline, stateful=True)  # type: ignore[arg-type]  # no session is used
        for partition in self.world.partitions.values():
            if partition.seat == seat:
                found.arrives(self.world, partition)
        return found

    def run(self, instance: Checkpoint, state: bytes) -> str:
        """Have its query leave a state; where."""
        path = instance.prepare(self.world)
        self.disk.write(f"{path}/state/0/0/data", state)
        for partition in self.world.partitions.values():
            partition.position += 100
        return path

    def map(self, seat: str, epoch: int, *names: str) -> None:
        """Give partitions to another seat, all of them unless some are named."""
        for name in names or ("0", "1"):
            self.world.partitions[name].seat, self.world.partitions[name].seated = seat, epoch

    def reset(self, position: int, sequence: int, *names: str, cut: int = 0) -> None:
        for name in names or ("0", "1"):
            partition = self.world.partitions[name]
            partition.position, partition.reset, partition.restored = position, sequence, cut


def same(frame: DataFrame) -> DataFrame:
    return frame


CONFIG = Config(streams=(Stream("s", 2),), positions={"0": 1, "1": 1}, assignment="mapped", mapping={"m1": ("0", "1")})
PIPELINE = Pipeline(function=same, group="g", stream="s", sink=SparkOutput("noop"), checkpoint="/c")


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Seats:
    return Seats(monkeypatch)


def take_cut(seats: Seats, instance: Checkpoint, sequence: int) -> None:
    seats.world.cut = Cut(sequence, 0, 0, periodic=False)
    assert instance.must_keep(seats.world)
    instance.keep(sequence, seats.world)
    assert not instance.must_keep(seats.world)
    kept = instance.kept_for(seats.world)
    parts = {name: Part(partition.position, state=kept) for name, partition in seats.world.partitions.items()}
    seats.world.cuts[sequence] = Cut(sequence, 0, 0, periodic=False, parts=parts)
    seats.world.cut = None


def test_whoever_takes_the_seat_over_finds_its_state(seats: Seats) -> None:
    path = seats.run(seats.come(), b"one")
    assert seats.come().prepare(seats.world) == path
    assert seats.disk.files[f"{path}/state/0/0/data"] == b"one"


def test_a_reset_to_a_cut_brings_back_the_state_that_was_kept_with_it(seats: Seats) -> None:
    instance = seats.come()
    first = seats.run(instance, b"at the cut")
    take_cut(seats, instance, 50)
    seats.disk.write(f"{first}/state/0/0/data", b"later")
    seats.reset(101, 60, cut=50)
    path = seats.come().prepare(seats.world)
    assert path != first
    assert seats.disk.files[f"{path}/state/0/0/data"] == b"at the cut"


def test_a_reset_to_the_beginning_begins_with_an_empty_state_and_says_so(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    first = seats.run(seats.come(), b"one")
    assert not caplog.messages
    seats.reset(1, 60)
    path = seats.come().prepare(seats.world)
    assert path != first
    assert f"{path}/state/0/0/data" not in seats.disk.files
    assert caplog.messages == ["the state of this seat begins empty, as the reset asks for"]


def test_a_reset_to_the_beginning_begins_with_an_empty_state_also_where_a_copy_was_interrupted(seats: Seats) -> None:
    first = seats.run(seats.come(), b"one")
    home, _, generation = first.rpartition("/")
    seats.disk.write(f"{home}/{int(generation) + 1}/state/0/0/data", b"half a copy")
    seats.reset(1, 60)
    path = seats.come().prepare(seats.world)
    assert path == f"{home}/{int(generation) + 1}"
    assert f"{path}/state/0/0/data" not in seats.disk.files


def test_a_reset_to_a_cut_with_another_mapping_brings_the_state_to_a_seat_that_has_all_its_partitions(
    seats: Seats,
) -> None:
    instance = seats.come()
    seats.run(instance, b"at the cut")
    seats.world.partitions["1"].position = 1  # Nothing of it was processed yet.
    take_cut(seats, instance, 50)
    seats.map("m2", 70)
    seats.reset(101, 80, "0", cut=50)
    seats.reset(1, 80, "1", cut=50)
    path = seats.come("m2").prepare(seats.world)
    assert seats.disk.files[f"{path}/state/0/0/data"] == b"at the cut"


def test_a_seat_with_only_some_of_a_cuts_partitions_begins_with_an_empty_state_and_says_so(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    instance = seats.come()
    seats.run(instance, b"at the cut")
    take_cut(seats, instance, 50)
    seats.map("m2", 70, "1")
    seats.reset(101, 80, cut=50)
    path = seats.come().prepare(seats.world)
    assert f"{path}/state/0/0/data" not in seats.disk.files
    assert caplog.messages == ["the cut holds no state for just the partitions of this seat: its state begins empty"]


def test_state_of_a_partition_that_was_reset_elsewhere_after_the_cut_is_not_restored(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    instance = seats.come()
    seats.run(instance, b"at the cut")
    take_cut(seats, instance, 50)
    seats.map("m2", 70)
    seats.reset(101, 80, cut=50)
    seats.reset(1, 90, "1")
    path = seats.come("m2").prepare(seats.world)
    assert f"{path}/state/0/0/data" not in seats.disk.files
    assert caplog.messages == ["the cut holds no state for just the partitions of this seat: its state begins empty"]


def test_a_reset_of_some_partitions_of_the_seat_is_refused(seats: Seats) -> None:
    seats.run(seats.come(), b"one")
    seats.reset(1, 60, "1")
    with pytest.raises(InvalidConfig, match="they share one state"):
        seats.come().prepare(seats.world)


def test_a_partition_that_another_seat_has_worked_on_is_refused_by_everybody_until_a_reset(seats: Seats) -> None:
    seats.world.partitions["1"].seat = "m2"
    seats.run(seats.come(), b"one")
    seats.world.partitions["1"].seat = "m1"
    seats.world.partitions["1"].seated = 70
    for _ in range(2):
        with pytest.raises(InvalidConfig, match="comes from another seat"):
            seats.come().prepare(seats.world)
    seats.reset(1, 80)
    seats.come().prepare(seats.world)


@pytest.mark.parametrize("has_state", [True, False])
def test_a_partition_that_another_seat_has_worked_on_since_a_reset_is_refused(seats: Seats, has_state: bool) -> None:
    for name, partition in seats.world.partitions.items():
        partition.seat = "m1" if has_state and name == "0" else "m2"
    seats.reset(50, 60)
    if has_state:
        seats.run(seats.come(), b"one")
    seats.run(seats.come("m2"), b"two")
    for partition in seats.world.partitions.values():
        if partition.seat == "m2":
            partition.seat, partition.seated = "m1", 70
    with pytest.raises(InvalidConfig, match="comes from another seat"):
        seats.come().prepare(seats.world)
    seats.reset(50, 80)
    seats.come().prepare(seats.world)


def test_state_from_before_a_reset_is_not_gone_on_with_after_another_seat_had_the_partition_and_did_nothing(
    seats: Seats,
) -> None:
    seats.map("m2", 10, "1")
    first = seats.run(seats.come("m2"), b"before the reset")
    seats.map("m1", 50, "1")
    seats.reset(1, 60)
    seats.come().prepare(seats.world)
    seats.map("m2", 70, "1")
    path = seats.come("m2").prepare(seats.world)
    assert path != first
    assert f"{path}/state/0/0/data" not in seats.disk.files


def test_a_partition_comes_back_at_its_beginning_to_a_seat_whose_state_was_begun_with_the_same_reset(
    seats: Seats,
) -> None:
    seats.run(seats.come(), b"before the reset")
    seats.map("m2", 50, "1")
    seats.reset(1, 60)
    path = seats.come().prepare(seats.world)
    seats.disk.write(f"{path}/state/0/0/data", b"of 0")
    seats.world.partitions["0"].position += 100
    seats.come("m2").prepare(seats.world)
    seats.map("m1", 70, "1")
    assert seats.come().prepare(seats.world) == path
    assert seats.disk.files[f"{path}/state/0/0/data"] == b"of 0"


def test_a_group_that_was_reset_before_anybody_came_begins_there(seats: Seats) -> None:
    seats.reset(50, 4)
    seats.come().prepare(seats.world)


def test_a_partition_that_went_to_another_seat_and_came_back_is_refused(seats: Seats) -> None:
    seats.run(seats.come(), b"one")
    seats.world.partitions["1"].seated = 90
    for _ in range(2):
        with pytest.raises(InvalidConfig, match="comes from another seat"):
            seats.come().prepare(seats.world)


def test_a_seat_without_any_state_refuses_a_partition_that_is_not_at_its_beginning(seats: Seats) -> None:
    seats.world.partitions["0"].position = 40
    with pytest.raises(InvalidConfig, match="comes from another seat"):
        seats.come().prepare(seats.world)


def test_copies_of_retired_cuts_and_former_generations_are_deleted_but_for_their_schemas(seats: Seats) -> None:
    instance = seats.come()
    first = seats.run(instance, b"one")
    for name in ("offsets/0", "state/0/_stateSchema/default/0_a"):
        seats.disk.write(f"{first}/{name}", b"x")
    take_cut(seats, instance, 50)
    take_cut(seats, instance, 55)
    del seats.world.cuts[50]
    seats.reset(101, 60, cut=55)
    path = seats.come().prepare(seats.world)
    assert path != first
    assert seats.disk.names(f"{path.rpartition('/')[0]}/cuts") == ["55"]
    left = [name.removeprefix(f"{first}/") for name in seats.disk.files if name.startswith(f"{first}/")]
    assert left == ["state/0/_stateSchema/default/0_a"]


def test_files_of_a_file_sink_that_the_seats_query_did_not_write_are_refused(seats: Seats) -> None:
    seats.pipeline = structs.replace(PIPELINE, sink=SparkOutput("parquet", {"path": "/files"}))
    path = seats.come().prepare(seats.world)
    for batch in ("0", "1", "9.compact"):
        seats.disk.write(f"{path}/offsets/{batch.removesuffix('.compact')}", b"")
        seats.disk.write(f"/files/_spark_metadata/{batch}", b"")
        seats.come().prepare(seats.world)
    seats.reset(1, 60)
    with pytest.raises(InvalidConfig, match="the files at /files are further than this seat's checkpoint"):
        seats.come().prepare(seats.world)


def test_a_file_sink_is_refused_to_a_seat_that_came_beside_another_after_the_instance_was_there(seats: Seats) -> None:
    seats.pipeline = structs.replace(PIPELINE, sink=SparkOutput("parquet", {"path": "/files"}))
    seats.come().prepare(seats.world)
    seats.world.config = structs.replace(CONFIG, mapping={"m1": ("0",), "m2": ("1",)})
    seats.map("m2", 70, "1")
    with pytest.raises(InvalidConfig, match="the group g has more than one seat"):
        seats.come("m2").prepare(seats.world)


def test_what_a_writer_left_half_written_is_not_taken_for_the_seat(seats: Seats) -> None:
    path = seats.run(seats.come(), b"one")
    seats.disk.write(path.rpartition("/")[0] + "/seat.json", b'{"generat')
    assert seats.come().prepare(seats.world) == path
