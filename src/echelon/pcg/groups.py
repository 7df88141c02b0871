"""Administration of JetStream-native groups: all that the Go, Java and .NET libraries do, on the same entries."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from echelon.brokers.nats.broker import NatsBroker
from echelon.brokers.nats.pull_consumers import ConsumerInfo, Consumers, connect
from echelon.errors import (
    BrokerError,
    ConsumerNotFound,
    GroupError,
    GroupExists,
    GroupNotFound,
    InvalidConfig,
    StreamNotFound,
    WrongState,
)
from echelon.pcg.bucket import Bucket, Entry
from echelon.pcg.config import (
    ElasticConfig,
    Format,
    GroupConfig,
    Kind,
    MemberMapping,
    StaticConfig,
    check,
    check_names,
)
from echelon.pcg.formats import decode, encode, encode_change, recognise
from echelon.pcg.found import Found

_KINDS: Final[tuple[Kind, ...]] = ("static", "elastic")
_ATTEMPTS: Final = 50
_PAUSE_SECONDS: Final = 0.02


@asynccontextmanager
async def open_groups(url: str, **options: object) -> "AsyncGenerator[Groups, None]":
    """Groups over a connection of their own; URL and options as `NatsBroker` takes them. Raises as it does."""
    async with connect(url, **options) as consumers:
        yield Groups(consumers, lambda: NatsBroker(url, **options))


class Groups:
    """The JetStream-native groups of an account. All raise StreamNotFound, Unreachable, Denied besides what is named.

    Entries are changed by compare-and-set, and tried again if somebody else was faster: no change is lost.
    """

    def __init__(self, consumers: Consumers, broker: Callable[[], NatsBroker]) -> None:
        self.consumers = consumers
        self.broker = broker
        """A broker for the same account, not entered yet: dead letters go there."""
        self._buckets = {kind: Bucket(consumers, kind) for kind in _KINDS}

    def bucket(self, kind: Kind) -> Bucket:
        """The bucket of the groups of a kind."""
        return self._buckets[kind]

    async def create(self, stream: str, group: str, config: GroupConfig) -> Found:
        """Make a group, with its work queue if it is elastic; or find one that is configured equally.

        Raises GroupExists if there is one of that name and kind that is not equal, InvalidConfig. For an elastic
        group that is there, the members do not matter: it keeps its own.
        """
        check_names(stream, group, config)
        check(config)
        kind: Kind = "static" if isinstance(config, StaticConfig) else "elastic"
        details = await self.consumers.details(stream)
        bucket = self.bucket(kind)
        await bucket.ensure(details.config.get("num_replicas", 1))
        for _ in range(_ATTEMPTS):
            entry = await bucket.get(_key(stream, group))
            if entry is not None:
                break
            await bucket.put(_key(stream, group), encode(config), await bucket.revision(_key(stream, group)))
        else:
            raise GroupError(f"the group {_key(stream, group)} cannot be made: its entry is deleted again and again")
        found = await self._found(kind, stream, group, entry)
        # Java's format is known by its consumers, which there may be none of.
        same = replace(found.config, format=config.format) if config.format == "java" else found.config
        if isinstance(same, ElasticConfig):
            same = replace(same, members=config.members, member_mappings=config.member_mappings)
        if same != config:
            raise GroupExists(
                f"there is another {kind} group {group} on the stream {stream}",
                remedy="Use it as it is, or delete it first",
            )
        if isinstance(config, ElasticConfig) and not await self._make_queue(found, config):
            raise GroupExists(
                f"the stream {found.consumed}, which would be the group's work queue, is another one",
                remedy="Choose another name for the group, or delete that stream",
            )
        return found

    async def restore(self, found: Found) -> None:
        """Make the work queue of an elastic group anew if it is gone: it has all messages of the stream again.

        Does nothing if the group was deleted.
        """
        assert isinstance(found.config, ElasticConfig)
        bucket, key = self.bucket(found.kind), _key(found.stream, found.name)
        if await bucket.get(key) is not None:
            await self._make_queue(found, found.config)
            if await bucket.get(key) is None:
                # Who deletes a group deletes the entry first, then the queue: that was why it was gone.
                with contextlib.suppress(StreamNotFound):
                    await self.consumers.delete_stream(found.consumed)

    async def _make_queue(self, found: Found, config: ElasticConfig) -> bool:
        """Make the work queue; False if another stream has its name."""
        source = (await self.consumers.details(found.stream)).config
        made = await self.consumers.create_stream(
            {
                "name": found.consumed,
                "retention": "workqueue",
                "num_replicas": source.get("num_replicas", 1),
                "storage": source.get("storage", "file"),
                "max_msgs": config.max_buffered_msgs or -1,
                "max_bytes": config.max_buffered_bytes or -1,
                "discard": "new",
                "sources": [{"name": found.stream, "subject_transforms": config.transforms()}],
                "allow_direct": True,
            }
        )
        return made is not None

    async def get(self, stream: str, group: str, kind: Kind | None = None, *, format: Format | None = None) -> Found:
        """A group. Raises GroupNotFound; WrongState if there is one of each kind, GroupError if it cannot be read.

        `format` is for a static group with a single filter that has no consumers yet: it may be Java's or Go v0.1's,
        which is taken for granted otherwise. Raises InvalidConfig if the group is known to have another.
        """
        kind, entry = await self._entry(stream, group, kind)
        return await self._found(kind, stream, group, entry, format)

    async def _entry(self, stream: str, group: str, kind: Kind | None) -> tuple[Kind, Entry]:
        check_names(stream, group)
        key = _key(stream, group)
        kinds = _KINDS if kind is None else (kind,)
        found = [(each, entry) for each in kinds if (entry := await self.bucket(each).get(key)) is not None]
        if not found:
            which = f"{kind} " if kind else ""
            raise GroupNotFound(f"there is no {which}group {group} on the stream {stream}")
        if len(found) > 1:
            raise WrongState(
                f"there is a static and an elastic group {group} on the stream {stream}",
                remedy=f"Say which you mean; on the command line static:{key} or elastic:{key}",
            )
        return found[0]

    async def _found(self, kind: Kind, stream: str, group: str, entry: Entry, format: Format | None = None) -> Found:
        config = decode(entry.data, kind, _key(stream, group))
        try:
            check(config)
        except InvalidConfig as error:
            raise GroupError(f"the entry of the {kind} group {_key(stream, group)} is not valid: {error}") from error
        found = Found(kind, stream, group, config, entry.revision)
        if kind == "static" and config.format != "current":
            infos = await self._member_consumers(found)
            groups = {member: (info.config.get("priority_groups") or [""])[0] for member, info in infos.items()}
            found = replace(found, config=recognise(config, groups, format))
        if format not in (None, found.config.format):
            raise InvalidConfig(
                f"the {kind} group {_key(stream, group)} is in the format {found.config.format}, not {format}"
            )
        return found

    async def delete(self, stream: str, group: str, kind: Kind | None = None) -> None:
        """Delete a group: its entry, then its work queue or the consumers of its members. Its instances end.

        An entry that cannot be read goes, too; if it is of a static group, nobody can tell its consumers, which stay.
        Raises GroupNotFound, WrongState if there is one of each kind.
        """
        kind, entry = await self._entry(stream, group, kind)
        bucket, key = self.bucket(kind), _key(stream, group)
        try:
            config = decode(entry.data, kind, key)
        except GroupError:
            config = StaticConfig(max_members=1)
        found = Found(kind, stream, group, config, entry.revision)
        while not await bucket.delete(key, await bucket.revision(key)):
            continue  # It was changed just now; it goes all the same.
        if kind == "elastic":
            with contextlib.suppress(StreamNotFound):
                await self.consumers.delete_stream(found.consumed)
            return
        for member in config.names():
            with contextlib.suppress(ConsumerNotFound, StreamNotFound):
                await self.consumers.delete(found.consumed, found.consumer(member))

    async def list(self, stream: str = "") -> list[Found]:
        """The groups on a stream, or on all; by kind, stream and name. Entries that cannot be read are left out."""
        found: list[Found] = []
        for kind in _KINDS:
            for key in await self.bucket(kind).keys():
                on, _, name = key.partition(".")
                if name and stream in ("", on):
                    try:
                        found.append(await self.get(on, name, kind))
                    except (GroupError, InvalidConfig, BrokerError):
                        continue
        return found

    async def add_members(self, stream: str, group: str, members: Iterable[str]) -> tuple[str, ...]:
        """Add members to an elastic group; returns all. Raises GroupNotFound, InvalidConfig if it has a mapping."""
        new = set(members)
        return (await self._change(stream, group, lambda old: _with_members(old, {*old.members, *new}))).config.members

    async def drop_members(self, stream: str, group: str, members: Iterable[str]) -> tuple[str, ...]:
        """Take members out of an elastic group; returns those left. Raises as `add_members`."""
        gone = set(members)
        return (await self._change(stream, group, lambda old: _with_members(old, {*old.members} - gone))).config.members

    async def set_mappings(self, stream: str, group: str, mappings: Sequence[MemberMapping]) -> None:
        """Give an elastic group members with partitions of their own choosing, instead of those that it has.

        Raises GroupNotFound, InvalidConfig.
        """
        if not mappings:
            raise InvalidConfig("the mapping names no member", remedy="To go back to plain members, delete the mapping")
        await self._change(stream, group, lambda old: replace(old, members=(), member_mappings=tuple(mappings)))

    async def delete_mappings(self, stream: str, group: str) -> None:
        """Take the mapping away from an elastic group, which then has no members. Raises GroupNotFound."""
        await self._change(stream, group, lambda old: replace(old, member_mappings=()))

    async def _change(self, stream: str, group: str, change: Callable[[ElasticConfig], ElasticConfig]) -> Found:
        bucket, key = self.bucket("elastic"), _key(stream, group)
        for _ in range(_ATTEMPTS):
            entry = await bucket.get(key)
            if entry is None:
                raise GroupNotFound(f"there is no elastic group {group} on the stream {stream}")
            found = await self._found("elastic", stream, group, entry)
            assert isinstance(found.config, ElasticConfig)
            config = change(found.config)
            check_names(stream, group, config)
            check(config)
            if await bucket.put(key, encode_change(entry.data, config), entry.revision):
                return replace(found, config=config)
            await asyncio.sleep(_PAUSE_SECONDS * random.random())
        raise GroupError(f"the group {key} is changed by others all the time", remedy="Try again later")

    async def active_members(self, stream: str, group: str, kind: Kind | None = None) -> tuple[str, ...]:
        """The members that have an instance now, sorted. Raises GroupNotFound.

        The consumers of an elastic group go when nobody asks them any more; those of a static one stay.
        """
        found = await self.get(stream, group, kind)
        infos = await self._member_consumers(found)
        asked = {member for member, info in infos.items() if info.num_waiting or info.pinned}
        return tuple(sorted(asked if found.kind == "static" else infos))

    async def is_in_membership_and_active(
        self, stream: str, group: str, member: str, kind: Kind | None = None
    ) -> tuple[bool, bool]:
        """Whether the group has this member, and whether this member has an instance now. Raises GroupNotFound."""
        found = await self.get(stream, group, kind)
        return found.config.is_in_membership(member), member in await self.active_members(stream, group, found.kind)

    async def step_down(self, stream: str, group: str, member: str, kind: Kind | None = None) -> None:
        """Have the active instance of a member replaced by one that stands by, with the next message.

        Raises GroupNotFound, ConsumerNotFound if no instance was there yet.
        """
        found = await self.get(stream, group, kind)
        name = found.consumer(member)
        info = await self.consumers.info(found.consumed, name)
        priority_group = (info.config.get("priority_groups") or [found.config.priority_group(member)])[0]
        await self.consumers.unpin(found.consumed, name, priority_group)

    async def _member_consumers(self, found: Found) -> dict[str, ConsumerInfo]:
        """The consumers of the group's members that there are."""
        by_name = {found.consumer(member): member for member in found.config.names()}
        infos = await self.consumers.consumers(found.consumed)
        return {by_name[info.name]: info for info in infos if info.name in by_name}


def _key(stream: str, group: str) -> str:
    return f"{stream}.{group}"


def _with_members(config: ElasticConfig, members: set[str]) -> ElasticConfig:
    if config.member_mappings:
        raise InvalidConfig(
            "the group has a mapping of members to partitions", remedy="Change the mapping, or delete it first"
        )
    return replace(config, members=tuple(sorted(members)))
