"""Advisories on the broker: everything that the log says happened, each once, where the docs say."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from echelon.errors import GroupNotFound
from echelon.group.advisories import Watch
from echelon.group.config import Stream
from echelon.group.fold import apply
from echelon.group.records import Join, decode
from echelon.group.world import World
from echelon.keys import RecordKey, SubjectKey
from echelon.model import Entry, Message
from echelon.testing.contract.harness import whole
from tests.brokers.nats.harness import NatsHarness
from tests.members.stage import Stage, scene


def happened(entries: list[Entry]) -> Iterator[tuple[str, str]]:
    """Kind and id of every advisory that a log gives reason for, from the first join on: before, nobody is there."""
    world, somebody = World(), False
    watch = Watch(world)
    for entry in entries:
        record = decode(entry.data)
        apply(world, entry, record)
        somebody |= isinstance(record, Join)
        for advisory in watch.look(world):
            if somebody:
                yield advisory.kind, advisory.id


async def published(stage: Stage) -> list[Message]:
    """The advisories of this group that are on the broker."""
    if isinstance(stage.harness, NatsHarness):
        stream = Stream("ECHELON_ADVISORY", 1, SubjectKey(f"echelon.advisory.{stage.group}.*"))
    else:
        stream = Stream(f"echelon.advisory.{stage.group}", 1, RecordKey(), "native")
    return (await whole(await stage.broker.reader(stage.group, stream), 0))[0]


def kind_of(stage: Stage, message: Message) -> str:
    """The kind, from where a reader who looks for one kind finds it."""
    if isinstance(stage.harness, NatsHarness):
        assert message.subject.startswith(f"echelon.advisory.{stage.group}.")
        return message.subject.rpartition(".")[2]
    return (message.key or b"").decode()


@scene
async def test_everything_that_happens_to_a_group_is_published_each_once(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a", "b"))
    for name in ("a", "b"):
        stage.launch(name, name)
    await stage.until_seated("a", "b")
    await stage.admin.set_members(["a"])
    await stage.until_world(lambda _: set(stage.owners().values()) == {"a"})
    await stage.admin.cut()
    await stage.admin.pause()
    await stage.until_world(lambda _: not stage.owners())
    await stage.admin.resume()
    await stage.until_world(lambda _: len(stage.owners()) == 2)
    assert stage.world.config is not None
    await stage.admin.reset(stage.world.config.positions)

    log = await stage.broker.log(stage.group)
    bounds = await log.bounds()
    expected = list(happened(await log.read(bounds.first, bounds.end)))
    wanted = {"seat_taken", "partition_moved", "cut_complete", "group_paused", "group_resumed", "group_reset"}
    assert wanted <= {kind for kind, _ in expected}

    last = max(sequence_of(each) for _, each in expected)
    while len(found := await published(stage)) < len(expected):
        await asyncio.sleep(0.05)
    kinds = [kind_of(stage, message) for message in found]
    ids = [dict(message.headers)[id_header(stage)].decode() for message in found]
    ids = [each.removeprefix(f"{stage.world.identity}-") for each in ids]
    said = [(kind, each) for kind, each in zip(kinds, ids, strict=True) if sequence_of(each) <= last]
    assert sorted(said) == sorted(expected)
    bodies = [msgspec.json.decode(message.data) for message in found]
    assert [(body["kind"], body["sequence"]) for body in bodies] == list(zip(kinds, map(sequence_of, ids), strict=True))
    stage.check("once")


def sequence_of(id: str) -> int:
    """The sequence of the record that an advisory is about."""
    return int(id.partition("-")[0])


def id_header(stage: Stage) -> str:
    """The header by which a second copy is recognised."""
    return "Nats-Msg-Id" if isinstance(stage.harness, NatsHarness) else "echelon-id"


@pytest.mark.parametrize("stage", ["kafka"], indirect=True)
@scene
async def test_kafkas_own_tools_see_how_far_the_group_is(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a",))
    await stage.launch_seated("a", "a")
    await stage.publish(100)
    await stage.until_all_handled()
    ends = {int(name): messages[-1].sequence + 1 for name, messages in (await stage.stored()).items()}
    while await committed(stage) != ends:
        await asyncio.sleep(0.05)


async def committed(stage: Stage) -> dict[int, int]:
    try:
        return dict(await stage.broker.committed(stage.group, stage.stream))
    except GroupNotFound:
        return {}
