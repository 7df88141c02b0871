"""Echelon and the reference in Go in the same groups, message by message."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from echelon.errors import GroupDeleted
from echelon.local import NatsServer
from echelon.pcg import MemberMapping, Options, StaticConfig
from tests.pcg.reference import GoInstance, Reference, build
from tests.pcg.stage import Stage, staged
from tests.servers import skip_if_missing

# How much later a line of the other process may be read than it was written.
_READ_LATE = 1.0


@pytest.fixture(scope="session")
def cg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference's command."""
    with skip_if_missing():
        return build(tmp_path_factory.mktemp("cg"))


@pytest.fixture
def reference(cg: Path, nats_server: NatsServer, tmp_path: Path) -> Reference:
    return Reference(cg, nats_server.url, tmp_path / "config")


def options(reference: Reference) -> Options:
    return Options(ack_wait=reference.ack_wait)


def check_shared(stage: Stage, *instances: GoInstance, repeats: int = 0) -> None:
    """Every message was given to somebody; by key in order; at most `repeats` more than once."""
    seen: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for line in stage.lines():
        seen[line.key].append((line.began, line.sequence, line.name))
    for instance in instances:
        for given in instance.lines:
            seen[given.key].append((given.at, given.sequence, given.name))
    repeated = 0
    for key, count in stage.sent.items():
        sequences = sorted({sequence for _, sequence, _ in seen[key]})
        assert len(sequences) == count, (key, len(sequences), count)
        repeated += len(seen[key]) - count
        for name in {name for _, _, name in seen[key]}:
            own = [sequence for _, sequence, who in sorted(seen[key], key=_by_time) if who == name]
            assert own == sorted(own), (key, name, own)
        first = {sequence: at for at, sequence, _ in sorted(seen[key], key=_by_time, reverse=True)}
        for one, next_one in pairwise(sequences):
            assert first[next_one] > first[one] - _READ_LATE, (key, one, next_one)
    assert repeated <= repeats, f"{repeated} came more than once"


def _by_time(seen: tuple[float, int, str]) -> float:
    return seen[0]


async def until_all_given(stage: Stage, instances: Sequence[GoInstance], seconds: float = 40) -> None:
    def is_so() -> bool:
        seen: defaultdict[str, set[int]] = defaultdict(set)
        for line in stage.lines():
            seen[line.key].add(line.sequence)
        for instance in instances:
            for given in list(instance.lines):
                seen[given.key].add(given.sequence)
        return all(len(seen[key]) >= count for key, count in stage.sent.items())

    await stage.until(is_so, seconds)


async def until_go_has(stage: Stage, instance: GoInstance, after: float = 0.0, seconds: float = 30) -> float:
    """When a Go instance was first given a message after a moment."""
    await stage.until(lambda: any(line.at > after for line in list(instance.lines)), seconds)
    return next(line.at for line in instance.lines if line.at > after)


def test_echelon_consumes_and_administers_what_cg_has_created(
    nats_server: NatsServer, tmp_path: Path, reference: Reference
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            stream = stage.stream
            reference.create_elastic(stream, "g", 6, f"{stream}.*", 1)
            reference.run("elastic", "add", stream, "g", "m2", "m1")
            found = await stage.groups.get(stream, "g")
            assert found.kind == "elastic"
            assert found.config == msgspec.structs.replace(
                stage.elastic(6, *found.config.members), format=reference.format
            )
            assert found.config.names() == ("m1", "m2")
            # Created again by Echelon, it is the same group.
            await stage.create(stage.elastic(6, format=reference.format))
            await stage.publish(60)
            for member in ("m1", "m2"):
                stage.join(member, member, options=options(reference))
            await until_all_given(stage, [])
            check_shared(stage)
            assert {each.name for each in stage.lines()} == {"m1", "m2"}
            info = await asyncio.to_thread(reference.run, "elastic", "info", stream, "g")
            assert "currently active members: [m1 m2]" in info
            await asyncio.to_thread(reference.run, "elastic", "drop", stream, "g", "m1")
            assert (await stage.groups.get(stream, "g")).config.names() == ("m2",)
            await asyncio.to_thread(reference.run, "elastic", "create-mapping", stream, "g", "m1:5,0", "m2:1,2,3,4")
            changed = (await stage.groups.get(stream, "g")).config
            assert changed.member_mappings == (MemberMapping("m1", (5, 0)), MemberMapping("m2", (1, 2, 3, 4)))
            await asyncio.to_thread(reference.run, "elastic", "delete", "-f", stream, "g")
            for member in ("m1", "m2"):
                with pytest.raises(GroupDeleted):
                    await stage.end_of(member)

    asyncio.run(run())


def test_cg_consumes_and_administers_what_echelon_has_created(
    nats_server: NatsServer, tmp_path: Path, reference: Reference
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(6, format=reference.format))
            assert await stage.groups.add_members(stage.stream, "g", ["m1", "m2"]) == ("m1", "m2")
            listed = await asyncio.to_thread(reference.run, "elastic", "ls", stage.stream)
            assert "[g]" in listed
            info = await asyncio.to_thread(reference.run, "elastic", "info", stage.stream, "g")
            assert "max members=6" in info
            assert "members: [m1 m2]" in info
            await stage.publish(60)
            with (
                reference.consume("elastic", stage.stream, "g", "m1", "go1") as one,
                reference.consume("elastic", stage.stream, "g", "m2", "go2") as two,
            ):
                await until_all_given(stage, [one, two])
                check_shared(stage, one, two)
                assert await stage.groups.active_members(stage.stream, "g") == ("m1", "m2")
                await stage.groups.delete(stage.stream, "g")
                for instance in (one, two):
                    assert "instanced returned with no error" in await asyncio.to_thread(instance.wait, 20)

    asyncio.run(run())


def test_a_member_in_go_and_one_in_python_share_a_group_while_members_come_and_go(
    nats_server: NatsServer, tmp_path: Path, reference: Reference
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            stream = stage.stream
            await stage.create(stage.elastic(6, "go", format=reference.format))
            with reference.consume("elastic", stream, "g", "go", "go", "1ms") as instance:
                async with stage.publishing(rate=100):
                    await until_go_has(stage, instance)
                    stage.join("py", "py", options=options(reference))
                    stage.join("zy", "zy", options=options(reference))
                    await asyncio.to_thread(reference.run, "elastic", "add", stream, "g", "py")
                    changed = await stage.until_handled_by("py")
                    await until_go_has(stage, instance, changed)
                    await stage.groups.add_members(stream, "g", ["zy"])
                    changed = await stage.until_handled_by("zy")
                    await until_go_has(stage, instance, changed)
                    await stage.until_handled_by("py", after=changed)
                    # Python's partitions go to Go, and the other way round.
                    await asyncio.to_thread(reference.run, "elastic", "drop", stream, "g", "py", "zy")
                    await until_go_has(stage, instance, time.monotonic() + 0.5)
                    await stage.groups.add_members(stream, "g", ["py"])
                    await stage.groups.drop_members(stream, "g", ["go"])
                    await stage.until_handled_by("py", after=time.monotonic() + 0.5)
                await until_all_given(stage, [instance])
                # Go does not wait for the message that it is at before it deletes its consumer.
                check_shared(stage, instance, repeats=4)

    asyncio.run(run())


def test_an_instance_in_go_and_one_in_python_stand_by_for_each_other(
    nats_server: NatsServer, tmp_path: Path, reference: Reference
) -> None:
    async def run() -> None:
        # Side by side, for both wait for the ack wait most of the time.
        await asyncio.gather(in_an_elastic_group(), in_a_static_group())

    async def in_a_static_group() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            stage.stream = await stage.partitioned_stream(4)
            reference.create_static(stage.stream, "g", 4, "m", "n")
            with ExitStack() as stack:
                first = stack.enter_context(reference.consume("static", stage.stream, "g", "m", "go"))
                stage.launch("py", "n", ack_wait=reference.ack_wait)
                async with stage.publishing(rate=50):
                    await until_go_has(stage, first)
                    await stage.until_handled_by("py")
                    second = stack.enter_context(reference.consume("static", stage.stream, "g", "n", "go for py"))
                    stage.launch("py for go", "m", ack_wait=reference.ack_wait)
                    await asyncio.gather(stage.until_waiting("m", 2), stage.until_waiting("n", 2))
                    first.kill()
                    stage.processes["py"].kill()
                    killed = time.monotonic()
                    await stage.until_handled_by("py for go", after=killed)
                    await until_go_has(stage, second, killed)
                await until_all_given(stage, [first, second])
                check_shared(stage, first, second, repeats=2)

    async def in_an_elastic_group() -> None:
        async with staged(nats_server.url, tmp_path / "elastic") as stage:
            stream = stage.stream
            await stage.create(stage.elastic(4, "m", format=reference.format))
            async with stage.publishing(rate=50):
                with reference.consume("elastic", stream, "g", "m", "go") as first:
                    await until_go_has(stage, first)
                    stage.join("py", "m", options=options(reference))
                    await asyncio.sleep(0.5)
                    assert stage.handled == []
                    # Step-down from Go's side, then from Python's.
                    asked = time.monotonic()
                    await stage.groups.step_down(stream, "g", "m")
                    await stage.until_handled_by("py", after=asked)
                    await asyncio.sleep(0.5)
                    asked = time.monotonic()
                    await asyncio.to_thread(reference.run, "elastic", "step-down", stream, "g", "m")
                    await until_go_has(stage, first, asked + 0.1)
                    await asyncio.sleep(0.3)
                    first.kill()
                    await stage.until_handled_by("py", after=time.monotonic())
                with reference.consume("elastic", stream, "g", "m", "go again") as second:
                    await asyncio.sleep(0.5)
                    assert second.lines == []
                    await stage.leave("py")
                    left = time.monotonic()
                    assert await until_go_has(stage, second, left) - left < 2
                    await asyncio.sleep(0.3)
            with reference.consume("elastic", stream, "g", "m", "go at last") as third:
                await until_all_given(stage, [first, second, third])
                check_shared(stage, first, second, third, repeats=2)
            assert stage.told == [("py", turn) for turn in ("active", "inactive", "active", "inactive")]

    asyncio.run(run())


def test_a_static_group_of_cg_with_a_member_in_each_language(
    nats_server: NatsServer, tmp_path: Path, reference: Reference
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            stage.stream = await stage.partitioned_stream(4)
            reference.create_static(stage.stream, "g", 4, "go", "py")
            found = await stage.groups.get(stage.stream, "g")
            assert (found.kind, found.config.format, found.config.names()) == ("static", reference.format, ("go", "py"))
            stage.join("py", "py", options=options(reference))
            with reference.consume("static", stage.stream, "g", "go", "go") as instance:
                await stage.publish(60)
                await until_all_given(stage, [instance])
                check_shared(stage, instance)
                assert {line.partition for line in stage.lines()} == {"2", "3"}
                assert await stage.groups.active_members(stage.stream, "g") == ("go", "py")
                await stage.groups.step_down(stage.stream, "g", "go")
                # A second instance of Python's member, in Go, takes the consumer as Python has made it.
                with reference.consume("static", stage.stream, "g", "py", "py in go") as other:
                    await asyncio.sleep(0.5)
                    await stage.leave("py")
                    await stage.publish(60)
                    await until_all_given(stage, [instance, other])
                    check_shared(stage, instance, other)
                    assert other.lines
                await asyncio.to_thread(reference.run, "static", "delete", "-f", stage.stream, "g")
                assert "instanced returned with no error" in await asyncio.to_thread(instance.wait, 20)

    asyncio.run(run())


def test_cg_consumes_a_static_group_of_echelons(nats_server: NatsServer, tmp_path: Path, reference: Reference) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            stage.stream = await stage.partitioned_stream(4)
            filters = (">",) if reference.format == "v0.1" else ()
            config = StaticConfig(max_members=4, filters=filters, members=("m1", "m2"), format=reference.format)
            await stage.create(config)
            await stage.publish(40)
            with (
                reference.consume("static", stage.stream, "g", "m1", "go1") as one,
                reference.consume("static", stage.stream, "g", "m2", "go2") as two,
            ):
                await until_all_given(stage, [one, two])
                check_shared(stage, one, two)
                await stage.groups.delete(stage.stream, "g")
                assert "instanced returned with no error" in await asyncio.to_thread(one.wait, 20)

    asyncio.run(run())
