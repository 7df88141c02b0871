"""`members`, `member`, `map`, `step-down`: who sits where."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from echelon.cli.connection import GroupArgument, administer, now, run
from echelon.cli.native import add_native, drop_native, map_native, step_down_native, view_native
from echelon.cli.output import Format, FormatOption, show
from echelon.cli.progress import tell_silence
from echelon.errors import InvalidConfig, WrongState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from echelon.brokers.base import Broker
    from echelon.group.config import Config
    from echelon.group.world import World
    from echelon.ops.status import MemberRow

_LEAST_OF_ID: Final = 4
"""So many characters of an instance's id stand for it."""

member_app = typer.Typer(help="Add and drop the seats of a group.", no_args_is_help=True)
map_app = typer.Typer(help="Say which partitions each member has.", no_args_is_help=True)

MembersArgument = Annotated[list[str], typer.Argument(metavar="MEMBER", help="Their names.", show_default=False)]


def members(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """Show who holds the seats of a group, and who stands by."""
    from echelon.ops.listing import is_native
    from echelon.ops.status import MemberRow

    if is_native(group):
        from echelon.ops import native

        show(view_native(ctx, group, native.members), output, like=MemberRow, empty=f"{group} has no members")
        return

    async def work(broker: "Broker") -> "list[MemberRow]":
        from echelon.members.follower import read_world
        from echelon.ops import status
        from echelon.ops.listing import find_log
        from echelon.ops.replay import times_of

        log = await find_log(broker, group, "members")
        world, entries = await read_world(log)
        tell_silence(group, world)
        times = await times_of(log, entries, {seat.epoch for seat in world.seats.values()})
        return status.members(world, now(), times)

    show(run(ctx, work), output, like=MemberRow, empty=f"nobody is in {group}")


@member_app.command("add")
def add(ctx: typer.Context, group: GroupArgument, members: MembersArgument) -> None:
    """Add seats to a group with a list of members. Partitions that need not move are not touched."""
    from echelon.ops.listing import is_native

    if is_native(group):
        _tell_members(group, add_native(ctx, group, members))
        return

    def change(config: "Config") -> tuple[str, ...]:
        known = [member for member in members if member in config.seats()]
        if known:
            raise InvalidConfig(f"{known[0]} is a member of {group} already")
        return (*config.seats(), *members)

    _change_members(ctx, group, change)


@member_app.command("drop")
def drop(ctx: typer.Context, group: GroupArgument, members: MembersArgument) -> None:
    """Drop seats from a group with a list of members. Their partitions are drained and go to the others."""
    from echelon.ops.listing import is_native

    if is_native(group):
        _tell_members(group, drop_native(ctx, group, members))
        return

    def change(config: "Config") -> tuple[str, ...]:
        from echelon.ops.listing import check_member

        for member in members:
            check_member(group, member, config.seats())
        return tuple(member for member in config.seats() if member not in members)

    _change_members(ctx, group, change)


def _change_members(ctx: typer.Context, group: str, change: "Callable[[Config], tuple[str, ...]]") -> None:
    from msgspec import structs

    async def work(broker: "Broker") -> tuple[str, ...]:
        async with await administer(broker, group, "list of members") as admin:
            config = admin.world.config
            assert config is not None
            if config.membership != "listed":
                raise InvalidConfig(
                    f"the group {group} has no list of members: it is {config.membership}",
                    remedy="In an auto group instances come and go by themselves"
                    if config.membership == "auto"
                    else f"Change its mapping: echelon map set {group} ...",
                )
            await admin.configure(lambda found: structs.replace(found, members=change(found)))
            return admin.world.config.seats() if admin.world.config is not None else ()

    _tell_members(group, run(ctx, work))


def _tell_members(group: str, members: "Sequence[str]") -> None:
    typer.echo(f"members of {group}: {', '.join(members) or 'none'}", err=True)


@map_app.command("set")
def set_map(
    ctx: typer.Context,
    group: GroupArgument,
    mapping: Annotated[list[str], typer.Argument(metavar="MEMBER=P,P", help="m1=0,1 m2=2", show_default=False)],
) -> None:
    """Give each member its partitions. Every partition must be named once."""
    from msgspec import structs

    from echelon.cli.create import pairs
    from echelon.ops.listing import is_native

    if is_native(group):
        map_native(ctx, group, pairs(mapping))
        typer.echo(f"{group} is mapped", err=True)
        return

    async def work(broker: "Broker") -> None:
        async with await administer(broker, group, "mapping") as admin:
            await admin.configure(
                lambda config: structs.replace(config, assignment="mapped", mapping=pairs(mapping), members=None)
            )

    run(ctx, work)
    typer.echo(f"{group} is mapped", err=True)


@map_app.command("clear")
def clear_map(ctx: typer.Context, group: GroupArgument) -> None:
    """Take the mapping away. Its members stay, and partitions are spread evenly over them."""
    from msgspec import structs

    from echelon.ops.listing import is_native

    if is_native(group):
        map_native(ctx, group, {})
        typer.echo(f"{group} is no longer mapped, and has no members; add them with: echelon member add", err=True)
        return

    def change(config: "Config") -> "Config":
        if config.mapping is None:
            raise InvalidConfig(f"the group {group} is not mapped")
        return structs.replace(config, assignment="sticky", mapping=None, members=config.seats())

    async def work(broker: "Broker") -> None:
        async with await administer(broker, group, "mapping") as admin:
            await admin.configure(change)

    run(ctx, work)
    typer.echo(f"{group} is no longer mapped", err=True)


def step_down(
    ctx: typer.Context,
    group: GroupArgument,
    member: Annotated[
        str,
        typer.Argument(
            metavar="MEMBER", help="A seat; in an auto group an instance, by id or name.", show_default=False
        ),
    ],
) -> None:
    """Have the holder of a seat give it up. A stand-by takes it, if there is one."""
    from echelon.ops.listing import is_native

    if is_native(group):
        step_down_native(ctx, group, member)
        typer.echo(f"{member} steps down", err=True)
        return

    async def work(broker: "Broker") -> str:
        from echelon.ops.listing import vacant

        async with await administer(broker, group, "step-down") as admin:
            seat = _find_seat(group, admin.world, member)
            holder = admin.world.holder(seat)
            if holder is None:
                raise vacant(group, member)
            await admin.step_down(seat)
            return holder.profile.name

    typer.echo(f"{run(ctx, work)} steps down", err=True)


def _find_seat(group: str, world: "World", wanted: str) -> str:
    from echelon.ops.listing import check_member

    if wanted in world.seats:
        return wanted
    if not wanted:
        raise InvalidConfig(f"an empty word names nobody in {group}", remedy=f"See: echelon members {group}")
    # With fewer characters, a slip would name somebody.
    is_id = len(wanted) >= _LEAST_OF_ID
    named = [i.id for i in world.instances.values() if (is_id and i.id.startswith(wanted)) or i.profile.name == wanted]
    seats = [seat.member for seat in world.seats.values() if seat.holder in named]
    if len(seats) > 1:
        raise InvalidConfig(f"'{wanted}' stands for several instances of {group}", remedy="Give more of its id")
    names = [i.profile.name for i in world.instances.values()]
    check_member(group, seats[0] if seats else wanted, [*world.seats, *names])
    if not seats:
        raise WrongState(f"{wanted} holds no seat in {group}", remedy=f"See: echelon members {group}")
    return seats[0]
