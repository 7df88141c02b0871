"""A group and its members as tables: pure views of a world and of an observer's clock.

A row is a frozen struct; its fields are the columns, the same in a table, in JSON and in CSV. Times are in UTC.
`now` is the observer's clock in milliseconds; only the age of the newest record is told by it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from echelon.group.world import Instance, Partition, World
from echelon.model import partition_order

State = Literal["active", "empty", "paused", "cutting", "silent", "deleted"]
Role = Literal["active", "standby", "vacant"]
Place = Literal["owned", "moving", "waiting", "paused", "held", "idle"]


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group in a listing. `pending` is what its owners reported last."""

    group: str
    kind: str
    membership: str | None
    state: str
    streams: tuple[str, ...] = ()
    partitions: int | None = None
    idle: int | None = None
    seats: int | None = None
    active: int | None = None
    standby: int | None = None
    pending: int | None = None


class MemberRow(Struct, frozen=True, kw_only=True):
    """A seat with its holder, or an instance that stands by (then `member` is the seat that it waits for)."""

    member: str | None
    role: Role
    state: str | None = None
    name: str | None = None
    host: str | None = None
    pid: int | None = None
    instance: str | None = None
    since: datetime | None = None
    epoch: int | None = None
    partitions: int | None = None
    priority: int | None = None
    seen_seconds: float | None = None


def when(milliseconds: int) -> datetime:
    """A broker time for people."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def label(world: World, instance: str | None) -> str | None:
    """An instance for people: its name and the beginning of its id."""
    if instance is None:
        return None
    known = world.instances.get(instance)
    return f"{known.profile.name} {instance[:6]}" if known is not None else instance[:6]


def is_silent(world: World, now: int) -> bool:
    """Whether nobody has written for two intervals though there are instances: then the fold says nothing more."""
    there = any(not instance.stale for instance in world.instances.values())
    return there and now - world.broker_time > 2 * world.interval


def state(world: World, now: int) -> State:
    """The group in one word. Silence comes before everything that only a living group can be."""
    if world.deleted:
        return "deleted"
    if is_silent(world, now):
        return "silent"
    if world.paused is not None:
        return "paused"
    if not any(not instance.stale for instance in world.instances.values()):
        return "empty"
    return "cutting" if world.cut is not None else "active"


def group_row(name: str, world: World, now: int) -> GroupRow:
    """The group as a line of a listing."""
    config = world.config
    assert config is not None
    rows = members(world, now)
    return GroupRow(
        group=name,
        kind="echelon",
        membership=config.membership,
        state=state(world, now),
        streams=tuple(stream.name for stream in config.streams),
        partitions=len(world.partitions),
        idle=sum(place(world, partition, now) == "idle" for partition in world.partitions.values()),
        seats=len(world.seats),
        active=sum(row.role == "active" and row.state in {"fresh", "unknown"} for row in rows),
        standby=sum(row.role == "standby" and row.state in {"fresh", "unknown"} for row in rows),
        pending=sum(partition.pending for partition in world.partitions.values()),
    )


def in_order(world: World) -> list[tuple[str, Partition]]:
    """The partitions by name, in order."""
    return sorted(world.partitions.items(), key=lambda item: partition_order(item[0]))


def members(world: World, now: int, times: Mapping[int, int] | None = None) -> list[MemberRow]:
    """All seats, then those that stand by. `times` has the broker times of records; claims tell since when."""
    known = times or {}
    rows = [_seat_row(world, member, now, known) for member in sorted(world.seats)]
    holders = {seat.holder for seat in world.seats.values()}
    waiting = [instance for instance in world.instances.values() if instance.id not in holders]
    return rows + [
        _instance_row(world, instance, now, member=instance.member, role="standby", since=when(instance.joined_time))
        for instance in sorted(waiting, key=lambda each: (each.member or "", each.profile.priority, each.joined))
    ]


def _seat_row(world: World, member: str, now: int, times: Mapping[int, int]) -> MemberRow:
    seat = world.seats[member]
    instance = world.instances.get(seat.holder or "")
    if instance is None:
        return MemberRow(member=member, role="vacant")
    since = when(times[seat.epoch]) if seat.epoch in times else None
    return _instance_row(world, instance, now, member=member, role="active", since=since, epoch=seat.epoch)


def _instance_row(
    world: World,
    instance: Instance,
    now: int,
    *,
    member: str | None,
    role: Role,
    since: datetime | None,
    epoch: int | None = None,
) -> MemberRow:
    machine = instance.profile.machine
    silence = max(0, now - world.broker_time) + world.time - instance.last
    return MemberRow(
        member=member,
        role=role,
        state=_liveness(world, instance, now),
        name=instance.profile.name,
        host=machine.host or None if machine is not None else None,
        pid=machine.processes[0][0] if machine is not None and machine.processes else None,
        instance=instance.id,
        since=since,
        epoch=epoch,
        partitions=sum(1 for _ in world.owned(instance.id)),
        priority=instance.profile.priority,
        seen_seconds=round(silence / 1000, 1),
    )


def _liveness(world: World, instance: Instance, now: int) -> str:
    if instance.stale:
        return "stale"
    if is_silent(world, now):
        return "silent"
    return "fresh" if world.fresh(instance) else "unknown"


def place(world: World, partition: Partition, now: int) -> Place:
    """The partition in one word. In a silent group nobody works, whatever the world says."""
    if partition.owner is None:
        if partition.held:
            return "held"
        return "paused" if world.paused is not None else "idle"
    if is_silent(world, now):
        return "idle"
    if world.leaves(partition):
        return "moving"
    # Who gains what was not released waits for two intervals; that it has begun is read only when it reports.
    waits = partition.waits and not partition.reported and world.time - partition.since <= 2 * world.interval
    return "waiting" if waits else "owned"
