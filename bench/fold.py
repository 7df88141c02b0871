"""How fast the world is folded, and how long a newcomer takes to read a group with a long history."""

import time
from collections.abc import Iterator
from itertools import chain, count

from msgspec import structs

from echelon.group.config import Config, Stream
from echelon.group.fold import apply
from echelon.group.newcomer import world_of
from echelon.group.own import Own
from echelon.group.records import Backlog, Claim, Configure, Heartbeat, Join, Profile, Progress, Record, decode, encode
from echelon.group.world import World
from echelon.model import Entry
from report import Row, main, row

INSTANCES = [f"i{number:03}" for number in range(100)]
PARTITIONS = 64
SHORT, LONG = 50_000, 1_000_000
INTERVAL = 3000
BASE_TIME = 1_700_000_000_000


def run() -> list[Row]:
    """Fold two logs that differ only in length, and read the end of each as a newcomer does."""
    short, world, seconds = make_log(SHORT)
    if any(partition.owner is None for partition in world.partitions.values()):
        raise AssertionError("the group of the benchmark is not at work")
    long, _, _ = make_log(LONG)
    early, late = newcomer_seconds(short), newcomer_seconds(long)
    return [
        row("fold, 100 instances, 64 partitions", SHORT / seconds, "records/s", peer_name="bound", peer=100_000),
        row("newcomer, 1,000,000 records", late * 1000, "ms", peer_name="bound", peer=1000, less_is_better=True),
        row(
            "newcomer, 20 times the history",
            late * 1000,
            "ms",
            peer_name="newcomer, 50,000 records",
            peer=early * 1000,
            target=0.5,
            less_is_better=True,
        ),
    ]


def make_log(length: int) -> tuple[list[Entry], World, float]:
    """A log as its instances would write it, the world, and the seconds that decoding and folding took."""
    world = World()
    writer = Own(INSTANCES[0], Profile(INSTANCES[0]), began=0)
    entries: list[Entry] = []
    seconds = 0.0
    records = chain(_beginning(), _heartbeats(world))
    for number in range(1, length + 1):
        record = next(records) if writer.picture is None else writer.picture
        clock = number * (INTERVAL // 3) // len(INSTANCES)
        entry = Entry(number, BASE_TIME + clock, encode(structs.replace(record, counter=number)))
        began = time.perf_counter()
        decoded = decode(entry.data)
        counted = apply(world, entry, decoded)
        seconds += time.perf_counter() - began
        writer.heard(world, entry, decoded, counted=counted, now=clock)
        entries.append(entry)
    return entries, world, seconds


def _beginning() -> Iterator[Record]:
    names = [str(number) for number in range(PARTITIONS)]
    config = Config(streams=(Stream("data", PARTITIONS),), positions=dict.fromkeys(names, 0), interval=INTERVAL / 1000)
    yield Configure(group="g", sender="admin", read=0, config=config)
    for name in INSTANCES:
        yield Join(group="g", sender=name, read=1, profile=Profile(name))
        yield Claim(group="g", sender=name, member=name)


def _heartbeats(world: World) -> Iterator[Record]:
    """What owners report: how far they are in each of their partitions, and what waits there."""
    for turn in count(1):
        owned: dict[str, list[str]] = {name: [] for name in INSTANCES}
        for partition in world.partitions.values():
            owned[partition.owner or INSTANCES[0]].append(partition.name)
        for name in INSTANCES:
            mine = [world.partitions[partition] for partition in owned[name]]
            progress = {p.name: Progress(p.epoch, 10 * turn) for p in mine}
            backlog = {p.name: Backlog(turn % 7, turn % 3) for p in mine}
            yield Heartbeat(group="g", sender=name, progress=progress, backlog=backlog)


def newcomer_seconds(entries: list[Entry]) -> float:
    """Read backwards in growing pieces until there is a snapshot, as from a broker, and fold from there."""
    began = time.perf_counter()
    for size in (4096 << doubling for doubling in count()):
        world = world_of(entries[-size:], from_start=size >= len(entries))
        if world is not None:
            return time.perf_counter() - began
    raise AssertionError("the log is not whole")


if __name__ == "__main__":
    main(run)
