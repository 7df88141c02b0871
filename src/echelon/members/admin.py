"""Administration of a group. Each call is a record, which is read back before the call returns."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Self

from msgspec import Struct, structs

from echelon.brokers.base import Broker, Log, Reader
from echelon.errors import GroupDeleted, GroupExists, GroupNotFound, InvalidConfig, UnknownName, Unreachable, WrongState
from echelon.group.config import MAX_PARTITIONS, Config, Stream, check, check_group_name
from echelon.group.records import (
    Admitted,
    AnyRecord,
    Configure,
    CutAbort,
    Delete,
    Newer,
    Pause,
    Reset,
    Resume,
    Retire,
    StepDown,
    TakeCut,
    Unpark,
    encode,
)
from echelon.group.world import HORIZON, Cut, World
from echelon.members.follower import Follower
from echelon.model import Bounds, Entry, partition_name

_TRIES: Final = 5
"""How often an administrator's record is written that the group ignores."""


class Committed(Struct, frozen=True):
    """Begin where the broker's own positions stand: those of a Kafka consumer group, or a durable's ack floor."""

    name: str


Start = Literal["earliest", "latest"] | int | Committed | Mapping[str, int]
"""Where a new group begins; a number is a broker time in milliseconds, a mapping has a position for each partition."""


async def create_group(
    broker: Broker, group: str, streams: Sequence[Stream], *, start: Start = "latest", **options: object
) -> World:
    """Make a group over these streams, with options as `Config` has them, and return its world.

    Making one that exists and is equal does nothing. Raises GroupExists if it is another one, InvalidConfig,
    StreamNotFound, NotPartitionable, and GroupNotFound if nothing is committed where it should begin.
    """
    check_group_name(group)
    if all(stream.partitioning != "native" for stream in streams):
        # To prepare them may make streams, which a mistake must not leave behind. Topics tell their partitions then.
        check(Config(streams=tuple(streams), positions=_anywhere(streams), **options))  # type: ignore[arg-type]  # checked
    prepared = tuple([await broker.prepare(group, stream) for stream in streams])
    positions = await _starting_positions(broker, group, prepared, start)
    config = Config(streams=prepared, positions=positions, **options)  # type: ignore[arg-type]  # checked right below
    check(config)
    log = await broker.create_log(group, prepared)
    await broker.prepare_outlets(group)
    admin = Admin(log, group)
    try:
        await admin.open()
    except GroupNotFound:
        made = Configure(group=uuid.uuid4().hex, sender=admin.sender, counter=1, read=0, config=config)
        await log.append(encode(made), admin=True)
        await admin.open()
    found = admin.world.config
    others = [name for name in Config.__struct_fields__ if getattr(found, name, None) != getattr(config, name)]
    if others and others != ["positions"]:
        names = ", ".join(name for name in others if name != "positions")
        raise GroupExists(f"there is a group {group} already, with other settings: {names}")
    return admin.world


def _anywhere(streams: Sequence[Stream]) -> dict[str, int]:
    """A position for each partition, as far as there may be any."""
    alone = len(streams) == 1
    counts = {stream.name: min(stream.partitions, MAX_PARTITIONS) for stream in streams}
    return {partition_name(name, number, alone=alone): 0 for name, count in counts.items() for number in range(count)}


async def _starting_positions(broker: Broker, group: str, streams: tuple[Stream, ...], start: Start) -> dict[str, int]:
    positions: dict[str, int] = {}
    for stream in streams:
        reader = await broker.reader(group, stream, alone=len(streams) == 1)
        bounds = (await reader.info()).bounds
        kept = await broker.committed(start.name, stream) if isinstance(start, Committed) else {}
        for number in range(stream.partitions):
            name = partition_name(stream.name, number, alone=len(streams) == 1)
            if isinstance(start, Committed):
                positions[name] = kept.get(number, bounds[number].first)
            else:
                positions[name] = await _starting_position(reader, number, name, bounds[number], start)
    return positions


async def _starting_position(
    reader: Reader, number: int, name: str, bounds: Bounds, start: str | int | Mapping[str, int]
) -> int:
    match start:
        case "earliest":
            return bounds.first
        case "latest":
            return bounds.end
        case int():
            return await reader.position_at(number, start)
        case Mapping() if name in start:
            return start[name]
    raise InvalidConfig(
        f"partition {name} has no starting position", remedy="Say earliest, latest, a time, or each one"
    )


class Admin:
    """An administrator of one group. Use it as an async context manager."""

    def __init__(self, log: Log, group: str) -> None:
        self.sender = uuid.uuid4().hex
        self.group = group
        self._log = log
        self._counter = 1
        self._follower = Follower(log, on_entry=self._heard)
        self._following: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._ignored: set[int] = set()

    @property
    def world(self) -> World:
        """The world as read so far."""
        return self._follower.world

    async def open(self) -> None:
        """Read the world. Raises GroupNotFound, LogBroken."""
        await self._follower.open()

    async def __aenter__(self) -> Self:
        await self.open()
        self._following = asyncio.ensure_future(self._follower.run())
        self._following.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def _heard(self, entry: Entry, record: AnyRecord | Newer | None, counted: bool) -> None:  # noqa: FBT001 - a callback
        if record is not None and record.sender == self.sender and not counted:
            self._ignored.add(entry.sequence)
        self._news.set()

    async def until(self, holds: Callable[[World], bool], *, seconds: float = 30.0) -> World:
        """Wait until the world is as asked for.

        Raises Unreachable if it is not in time, and what `open` raises if the log cannot be followed any more.
        """
        try:
            async with asyncio.timeout(seconds):
                while not holds(self.world):
                    if self._following is not None and self._following.done():
                        self._following.result()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Unreachable(
                f"the group {self.group} did not come into the state waited for in {seconds:g} s"
            ) from None
        return self.world

    async def _write(self, record: Admitted) -> int:
        """Append an administrator's record, and wait until it was read back; its sequence.

        A record whose sender had read too little by then is ignored by everybody, so it is written again. Raises
        Unreachable if that goes on, and GroupDeleted.
        """
        for _ in range(_TRIES):
            self._counter += 1
            stamped = structs.replace(
                record, group=self.world.identity, sender=self.sender, counter=self._counter, read=self.world.sequence
            )
            sequence = await self._log.append(encode(stamped), admin=True)
            await self._until_read(sequence)
            if sequence not in self._ignored:
                return sequence
            if self.world.deleted:
                raise GroupDeleted(f"the group {self.group} was deleted")
        limit = HORIZON * self.world.interval / 1000
        raise Unreachable(
            f"the group {self.group} ignored {_TRIES} records of this administrator: each was stored more than "
            f"{limit:g} s after what it had read",
            remedy="Administer the group from a machine that is less busy, or nearer to the broker",
        )

    async def _until_read(self, sequence: int) -> None:
        await self.until(lambda world: world.sequence >= sequence)

    async def configure(self, change: Callable[[Config], Config]) -> None:
        """Change the configuration; tries again if somebody else changed it meanwhile. Raises InvalidConfig."""
        while True:
            config = self.world.config
            assert config is not None
            changed = change(config)
            check(changed)
            replaces = self.world.configured
            sequence = await self._write(Configure(group="", sender="", read=0, config=changed, replaces=replaces))
            if self.world.configured == sequence:
                return
            if self.world.configured == replaces:
                raise InvalidConfig(f"the group {self.group} cannot be changed like that")

    async def set_members(self, members: Sequence[str]) -> None:
        """Give a listed group these members."""
        await self.configure(lambda config: structs.replace(config, members=tuple(members)))

    async def step_down(self, member: str) -> None:
        """Let whoever holds a seat give it up. Raises WrongState if nobody does, UnknownName if there is no seat."""
        seat = self.world.seats.get(member)
        if seat is None:
            raise UnknownName(f"{self.group} has no member {member}")
        if seat.holder is None:
            raise WrongState(f"nobody holds the seat of {member} in {self.group}")
        await self._write(StepDown(group="", sender="", read=0, epoch=seat.epoch))

    async def pause(self, until: int | None = None) -> None:
        """Pause the group, until a broker time if one is given."""
        await self._write(Pause(group="", sender="", read=0, until=until))

    async def resume(self) -> None:
        """End the pause."""
        await self._write(Resume(group="", sender="", read=0))

    async def cut(self, *, seconds: float = 60.0) -> Cut:
        """Take a cut, and wait until it is complete.

        Raises WrongState if one is under way, the group is paused, or it is aborted, and Unreachable if it is not
        complete in time.
        """
        sequence = await self._write(TakeCut(group="", sender="", read=0))
        under_way = self.world.cut.sequence if self.world.cut is not None else 0
        if sequence != under_way and sequence not in self.world.cuts and self.world.aborted < sequence:
            raise WrongState(
                f"the group {self.group} takes no cut now: one is under way, or the group is paused",
                remedy="Wait for the cut, abort it, or resume the group",
            )
        await self.until(lambda world: sequence in world.cuts or world.aborted >= sequence, seconds=seconds)
        found = self.world.cuts.get(sequence)
        if found is None:
            raise WrongState(
                f"the cut {sequence} of {self.group} was aborted",
                remedy="Somebody did not drain within cut_time, or reset or paused the group: look at its events",
            )
        return found

    async def abort_cut(self, cut: int) -> None:
        """Give up a cut that is under way."""
        await self._write(CutAbort(group="", sender="", read=0, cut=cut))

    async def retire(self, cut: int) -> None:
        """Forget a cut."""
        await self._write(Retire(group="", sender="", read=0, cut=cut))

    async def reset(self, positions: Mapping[str, int], *, cut: int | None = None, keep: bool = False) -> None:
        """Set the positions of these partitions; `keep` lets an exactly-once sink keep what lies past them."""
        await self._write(Reset(group="", sender="", read=0, positions=dict(positions), cut=cut, keep=keep))

    async def reset_to_cut(self, cut: int) -> None:
        """Go back to a cut; partitions added since then start at their beginning. Raises UnknownName."""
        found = self.world.cuts.get(cut)
        config = self.world.config
        if found is None or config is None:
            raise UnknownName(f"the group {self.group} has no cut {cut}")
        parts = {name: part.position for name, part in found.parts.items()}
        await self.reset({**config.positions, **parts}, cut=cut)

    async def unpark(self, partition: str, keys: Sequence[str], *, skip: bool = False) -> None:
        """Have parked keys tried again, or (`skip`) passed over."""
        await self._write(Unpark(group="", sender="", read=0, partition=partition, keys=tuple(keys), skip=skip))

    async def delete(self) -> None:
        """End the group: everyone stops. Its log is the broker's to remove, afterwards."""
        await self._write(Delete(group="", sender="", read=0))
