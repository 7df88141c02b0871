"""Which broker a command talks to, and how it gets at it."""

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from echelon.errors import InvalidConfig

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.group.world import World
    from echelon.members.admin import Admin

T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    """What the command line says of the broker. The first that is there counts: see `find`."""

    broker: str | None = None
    context: str | None = None

    def find(self) -> tuple[str, dict[str, object]]:
        """URL and options, from the first of these that is there.

        `--broker`, `--context`, $ECHELON_URL, $ECHELON_CONTEXT, the default context, the only local server that is up.
        Raises InvalidConfig, with the ways to say it, if there is none of them.
        """
        from echelon.cli.contexts import Contexts

        environment = os.environ
        if self.broker is not None:
            return self.broker, {}
        if self.context is None and environment.get("ECHELON_URL"):
            return environment["ECHELON_URL"], {}
        contexts = Contexts()
        if self.context is not None:  # Also if it is empty, as a variable that is not set: else another broker is hit.
            return contexts.find(self.context)
        name = environment.get("ECHELON_CONTEXT") or contexts.default
        return contexts.find(name) if name else (_local_server(), {})


def _local_server() -> str:
    """The URL of the only server that `echelon local` has up."""
    from echelon.local import KafkaServer, NatsServer, default_data

    up = [s for s in (NatsServer(default_data("nats")), KafkaServer(default_data("kafka"))) if s.status() == "up"]
    if len(up) == 1:
        return up[0].url
    if up:
        urls = " or ".join(server.url for server in up)
        raise InvalidConfig("both local servers are up", remedy=f"Say which: --broker {urls}, or set ECHELON_URL")
    raise InvalidConfig(
        "no broker is named, and no local server is up",
        remedy="Say --broker nats://host:4222 or kafka://host:9092, set ECHELON_URL, make a context (echelon context "
        "add), or start a server here (echelon local up nats)",
    )


def run(ctx: typer.Context, work: "Callable[[Broker], Awaitable[T]]") -> T:
    """Connect to the broker, and do something with it."""
    import asyncio

    from echelon.brokers.connect import open_broker

    connection: Connection = ctx.obj
    url, options = connection.find()

    async def connected() -> T:
        async with open_broker(url, **options) as broker:
            return await work(broker)

    return asyncio.run(connected())


async def world_of(broker: "Broker", group: str, need: str = "such view") -> "World":
    """The world of a group now."""
    from echelon.members.follower import read_world
    from echelon.ops.listing import find_log

    return (await read_world(await find_log(broker, group, need)))[0]


async def administer(broker: "Broker", group: str, need: str) -> "AbstractAsyncContextManager[Admin]":
    """An administrator of a group that has a log; to be entered."""
    from echelon.members.admin import Admin
    from echelon.ops.listing import find_log

    return Admin(await find_log(broker, group, need), group)


def now() -> int:
    """The clock of this machine, in milliseconds."""
    import time

    return time.time_ns() // 1_000_000


def confirm(question: str, *, force: bool) -> None:
    """Ask before something is destroyed; ends the command if the answer is no, or if there is nobody to answer."""
    from echelon.cli.exits import DECLINED

    if force:
        return
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    answer = ""
    with suppress(UnicodeDecodeError):
        answer = sys.stdin.readline() if sys.stdin is not None else ""  # None if it was closed before.
    if not answer:
        typer.echo("\nnot confirmed: say --force if nobody is there to answer", err=True)
        raise typer.Exit(DECLINED)
    if answer.strip().lower() not in {"y", "yes"}:
        typer.echo("nothing was done", err=True)
        raise typer.Exit(DECLINED)


def _complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of groups, for the shell; none if the broker does not answer."""
    from echelon.errors import EchelonError

    root = ctx.find_root()
    ctx.obj = Connection(root.params.get("broker"), root.params.get("context"))

    async def names(broker: "Broker") -> list[str]:
        from echelon.cli.native import list_native

        return [*await broker.groups(), *(row.group for row in await list_native(ctx))]

    try:
        return [name for name in run(ctx, names) if name.startswith(incomplete)]
    except EchelonError:
        return []


GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", show_default=False, autocompletion=_complete_group)
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")]
