"""`create`: make a group."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from echelon.cli.connection import Connection, run
from echelon.cli.output import Format, FormatOption, show
from echelon.errors import InvalidConfig, Unsupported

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.group.config import Stream
    from echelon.members.admin import Start
    from echelon.ops.status import GroupRow


Partitioning = Literal["token", "derived", "computed", "native"]

_OWN_OPTIONS: Final = ("streams", "positions", "ends", "members", "mapping", "delivery", "interval", "on_failure")
"""What a group has besides the settings that `--set` sets."""
_NATIVE_SETTINGS: Final = ("max_buffered_msgs", "max_buffered_bytes")
_NOT_NATIVE: Final = {
    "partitioning": None,
    "start": "latest",
    "delivery": "at_least_once",
    "on_failure": "stop",
    "interval": "3s",
}
"""Options that mean nothing for JetStream-native groups, with their defaults."""


def create(  # noqa: PLR0913 - a group has that many choices
    ctx: typer.Context,
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="Its name; STREAM.NAME for a JetStream-native one.", show_default=False),
    ],
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="The streams or topics that it is over.", show_default=False),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option("--members", metavar="M1,M2", help="Its seats.", show_default="every instance has its own"),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="M=P,P", help="A seat with its partitions, as m1=0,1; for each seat."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; on Kafka the topic's own.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="What order is kept by: subject, subject:FILTER, tokens:FILTER:1,2, header:NAME, "
            "header:NAME:FILTER, record.",
            show_default="subject on NATS, record on Kafka",
        ),
    ] = None,
    partitioning: Annotated[
        Partitioning | None, typer.Option(help="How.", show_default="computed on NATS, native on Kafka")
    ] = None,
    start: Annotated[
        str, typer.Option("--start", metavar="WHERE", help="earliest, latest, committed:NAME, or a time.")
    ] = "latest",
    delivery: Annotated[
        Literal["at_most_once", "at_least_once", "exactly_once"], typer.Option(help="What is guaranteed.")
    ] = "at_least_once",
    on_failure: Annotated[
        Literal["stop", "dead_letter", "park"], typer.Option(help="What happens after the last retry.")
    ] = "stop",
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Two of these without a sign, and a seat is free.")
    ] = "3s",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, as cut_every=600 or assignment=blocks."),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="A JetStream-native group that is static.", show_default="elastic")
    ] = False,
    output: FormatOption = Format.table,
) -> None:
    """Make a group over streams or topics. Making one that exists and is equal does nothing.

    A JetStream-native group is called STREAM.NAME. It takes --members or --map, --partitions, --key, --static, and
    max_buffered_msgs and max_buffered_bytes with --set.
    """
    from echelon.cli.times import duration
    from echelon.group.config import Config, check_group_name
    from echelon.ops.listing import is_native

    seats, mapped = tuple(split(members or "")), pairs(mapping or [])
    if twice := [name for name in seats if seats.count(name) > 1]:
        raise InvalidConfig(f"the member {twice[0]} is named twice", remedy="Name each once")
    if is_native(group) and not _is_kafka(ctx):
        from echelon.cli.native_create import create_native, native_config
        from echelon.keys import parse_key

        _check_native(ctx.params)
        wanted = parse_key(key) if key else None
        others = settings(setting or [], _NATIVE_SETTINGS)
        config = native_config(partitions, seats, mapped, wanted, others, static=static)
        show([create_native(ctx, group, streams or (), config)], output)
        return
    if static or not streams:
        raise InvalidConfig(
            "only a JetStream-native group is static" if static else "say which streams the group is to be over",
            remedy=f"Call it STREAM.{group}" if static else f"As: echelon create {group} STREAM",
        )
    check_group_name(group)
    begin = _start(start)
    options: dict[str, object] = {
        "delivery": delivery,
        "on_failure": on_failure,
        "interval": duration(interval),
        **settings(setting or [], [name for name in Config.__struct_fields__ if name not in _OWN_OPTIONS]),
    }
    if members is not None:
        options["members"] = seats
    if mapped:
        options |= {"assignment": "mapped", "mapping": mapped}

    async def work(broker: "Broker") -> "GroupRow":
        from echelon.cli.connection import now
        from echelon.members.admin import create_group
        from echelon.ops.status import group_row

        wanted = [stream(name, ctx, partitions, key, partitioning) for name in streams]
        world = await create_group(broker, group, wanted, start=begin, **options)
        return group_row(group, world, now())

    show([run(ctx, work)], output)


def _is_kafka(ctx: typer.Context) -> bool:
    connection: Connection = ctx.obj
    return connection.find()[0].startswith("kafka://")


def _check_native(given: Mapping[str, object]) -> None:
    for name, default in _NOT_NATIVE.items():
        if given[name] != default:
            raise Unsupported(
                f"a JetStream-native group has no --{name.replace('_', '-')}",
                remedy="It begins with the first message; how failures and deliveries are, each instance says itself",
            )


def stream(
    name: str, ctx: typer.Context, partitions: int | None, key: str | None, partitioning: Partitioning | None
) -> "Stream":
    """A stream as it was asked for; what was not said depends on the broker."""
    from echelon.group.config import Stream
    from echelon.keys import RecordKey, SubjectKey, parse_key

    if _is_kafka(ctx):
        if partitions is not None:
            raise InvalidConfig("a topic has partitions of its own", remedy="Leave out --partitions")
        return Stream(name, 1, parse_key(key) if key else RecordKey(), (partitioning or "native"))
    if partitions is None:
        raise InvalidConfig(
            "a stream of JetStream has no partitions of its own",
            remedy="Say how many the group is to have: --partitions 12",
        )
    return Stream(name, partitions, parse_key(key) if key else SubjectKey(), (partitioning or "computed"))


def _start(text: str) -> "Start":
    from echelon.cli.connection import now
    from echelon.cli.times import moment
    from echelon.members.admin import Committed

    match text.split(":", 1):
        case ["earliest"]:
            return "earliest"
        case ["latest"]:
            return "latest"
        case ["committed", name]:
            return Committed(name)
    return moment(text, now())


def settings(words: list[str], known: Sequence[str]) -> dict[str, object]:
    """Settings of a group from `name=value`; a value is JSON if it can be, else a word. Raises InvalidConfig."""
    import json

    found: dict[str, object] = {}
    for word in words:
        name, is_pair, text = word.partition("=")
        if not is_pair or name not in known:
            raise InvalidConfig(f"'{word}' is no setting", remedy=f"Write name=value, with one of {', '.join(known)}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


def pairs(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Members with their partitions, from `m1=0,1`. Raises InvalidConfig."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        member, is_pair, names = word.partition("=")
        if not is_pair or not member or member in found:
            raise InvalidConfig(f"'{word}' maps no member", remedy="Write each member once, as m1=0,1")
        found[member] = tuple(split(names))
    return found


def split(text: str) -> list[str]:
    """The words between commas."""
    return [word for word in text.split(",") if word]
