"""JetStream-native groups as tables. They have no log: their entry and the consumers of their members tell all.

On the command line such a group is called `STREAM.NAME`, as its entry is; no other group has a dot in its name. Where
a static and an elastic one have the same, they are called `static:STREAM.NAME` and `elastic:STREAM.NAME`.
"""

from collections import Counter
from datetime import datetime
from typing import get_args

import msgspec
from msgspec import Struct, structs

from echelon.brokers.nats.pull_consumers import ConsumerInfo
from echelon.errors import GroupNotFound, StreamNotFound, Unsupported
from echelon.ops.listing import suggestion
from echelon.ops.progress import LagRow, PartitionRow
from echelon.ops.status import GroupRow, MemberRow
from echelon.pcg.config import ElasticConfig, Kind
from echelon.pcg.found import Found
from echelon.pcg.groups import Groups


class View(Struct, frozen=True):
    """A group, the consumers of its members that there are, and what its work queue holds, if it has one."""

    found: Found
    consumers: dict[str, ConsumerInfo]
    queued: int | None

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return f"{self.found.stream}.{self.found.name}"

    @property
    def active(self) -> list[str]:
        """The members that have an instance now: somebody asks their consumer, or is pinned to it."""
        return sorted(m for m, consumer in self.consumers.items() if consumer.num_waiting or consumer.pinned)

    @property
    def waiting(self) -> int:
        """The messages that were not acknowledged yet; in a static group, as far as a member's consumer counts them."""
        if self.queued is not None:
            return self.queued
        return sum(consumer.num_pending + consumer.num_ack_pending for consumer in self.consumers.values())

    def owners(self) -> list[tuple[int, str | None]]:
        """The partitions, each with its member."""
        config = self.found.config
        owners = {number: member for member in config.names() for number in config.partitions(member)}
        return [(number, owners.get(number)) for number in range(config.max_members)]


async def look(groups: Groups, name: str) -> View:
    """One group. Raises GroupNotFound, with the names that look alike."""
    kind, stream, group = parts(name)
    try:
        return await _view(groups, await groups.get(stream, group, kind))
    except GroupNotFound:
        names = [f"{found.stream}.{found.name}" for found in await groups.list()]
        raise GroupNotFound(f"there is no group {name}", remedy=suggestion(name, names, "ls")) from None


def parts(name: str) -> tuple[Kind | None, str, str]:
    """The kind, if it is said, the stream and the name of a group on it."""
    found: Kind | None = next((kind for kind in get_args(Kind) if name.startswith(f"{kind}:")), None)
    stream, _, group = name.removeprefix(f"{found}:").partition(".")
    return found, stream, group


async def list_native(groups: Groups) -> list[GroupRow]:
    """All groups of an account. Two of the same name have their kinds before it, as commands want it."""
    rows = [group_row(await _view(groups, found)) for found in await groups.list()]
    times = Counter(row.group for row in rows)
    return [structs.replace(row, group=f"{row.kind}:{row.group}") if times[row.group] > 1 else row for row in rows]


async def _view(groups: Groups, found: Found) -> View:
    members = {found.consumer(member): member for member in found.config.names()}
    queued = None
    try:
        consumers = await groups.consumers.consumers(found.consumed)
        if found.kind == "elastic":
            queued = (await groups.consumers.details(found.consumed)).state.messages
    except StreamNotFound:  # The work queue was deleted, or the stream.
        consumers = []
    return View(found, {members[each.name]: each for each in consumers if each.name in members}, queued)


def group_row(view: View) -> GroupRow:
    """The group as a line of a listing."""
    config, active = view.found.config, view.active
    return GroupRow(
        group=view.name,
        kind=view.found.kind,
        membership="mapped" if config.member_mappings else "listed",
        state="active" if active else "empty",
        streams=(view.found.stream,),
        partitions=config.max_members,
        idle=sum(member not in active for _, member in view.owners()),
        seats=len(config.names()),
        active=len(active),
        pending=view.waiting,
    )


def describe(view: View) -> dict[str, object]:
    """The group's state and configuration."""
    config, row = view.found.config, group_row(view)
    found: dict[str, object] = {
        "group": row.group,
        "kind": row.kind,
        "membership": row.membership,
        "state": row.state,
        "stream": view.found.stream,
        "consumed": view.found.consumed,
        "revision": view.found.revision,
        "seats": row.seats,
        "active": row.active,
        "partitions": row.partitions,
        "idle": row.idle,
        "lag": row.pending,
        "members": list(config.names()),
        "mapping": {each.member: list(each.partitions) for each in config.member_mappings} or None,
        "subjects": list(config.subjects()),
        "format": config.format,
    }
    if isinstance(config, ElasticConfig):
        found["partitioning_filters"] = msgspec.to_builtins(config.partitioning_filters)
        found["max_buffered_msgs"] = config.max_buffered_msgs or None
        found["max_buffered_bytes"] = config.max_buffered_bytes or None
    return found


def members(view: View) -> list[MemberRow]:
    """All members, with the instance that is pinned. Who stands by is not known: JetStream does not tell them apart."""
    active = view.active
    return [
        MemberRow(
            member=member,
            role="active" if member in active else "vacant",
            instance=_pinned(view, member),
            since=_since(view.consumers.get(member)),
            partitions=len(view.found.config.partitions(member)),
        )
        for member in view.found.config.names()
    ]


def partitions(view: View) -> list[PartitionRow]:
    """All partitions. A position is that of the member's consumer, in the stream that it consumes."""
    active = view.active
    return [
        PartitionRow(
            partition=str(number),
            state="owned" if member in active else "idle",
            member=member,
            owner=_pinned(view, member or ""),
            epoch=None,
            position=view.consumers[member].ack_floor.stream_seq + 1 if member in view.consumers else None,
        )
        for number, member in view.owners()
    ]


def lag(view: View) -> list[LagRow]:
    """How much waits for each member, for consumers do not count by partition; the last row is the total.

    Of a member whom no instance has had yet, or lately, nothing is known; in an elastic group the total counts it.
    """
    rows = []
    for member in view.found.config.names():
        consumer = view.consumers.get(member)
        row = LagRow(
            partition=",".join(map(str, view.found.config.partitions(member))),
            owner=_pinned(view, member),
            position=consumer.ack_floor.stream_seq + 1 if consumer is not None else None,
            end=None,
            lag=consumer.num_pending + consumer.num_ack_pending if consumer is not None else None,
            lag_seconds=None,
        )
        rows.append(row)
    total = LagRow(partition="total", owner=None, position=None, end=None, lag=view.waiting, lag_seconds=None)
    return [*rows, total]


def check_elastic(view: View) -> None:
    """Raise Unsupported unless the group's members can change."""
    if view.found.kind == "static":
        raise Unsupported(
            f"{view.name} is a static group: its members never change",
            remedy="Delete it and make it anew, or use an elastic group",
        )


def _pinned(view: View, member: str) -> str | None:
    consumer = view.consumers.get(member)
    return consumer.pinned or None if consumer is not None else None


def _since(consumer: ConsumerInfo | None) -> datetime | None:
    if consumer is None or not consumer.pinned or not consumer.priority_groups:
        return None
    return datetime.fromisoformat(consumer.priority_groups[0].pinned_ts)
