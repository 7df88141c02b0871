"""All commands, put together."""

from collections.abc import Callable
from typing import Annotated, Final, Literal

import typer

from echelon.cli import (
    audit,
    context,
    create,
    cuts,
    demo,
    failures,
    flow,
    groups,
    history,
    join,
    local,
    progress,
    reset,
    run,
    seats,
    top,
)
from echelon.cli.connection import Connection
from echelon.cli.root import Root

app = typer.Typer(
    name="echelon",
    cls=Root,
    help="Consumer groups on NATS JetStream and Kafka, for Python processes and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# In the order in which help lists them.
_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "ls": groups.ls,
    "info": groups.info,
    "members": seats.members,
    "partitions": progress.partitions,
    "lag": progress.lag,
    "top": top.top,
    "create": create.create,
    "rm": groups.rm,
    "step-down": seats.step_down,
    "pause": flow.pause,
    "resume": flow.resume,
    "reset": reset.reset,
    "events": history.events,
    "history": history.history,
    "why": history.why,
    "join": join.join,
    "run": run.run,
    "audit": audit.audit,
    "demo": demo.demo,
}
_FAMILIES: Final[dict[str, typer.Typer]] = {
    "member": seats.member_app,
    "map": seats.map_app,
    "cut": cuts.app,
    "parked": failures.parked_app,
    "dead": failures.dead_app,
    "local": local.app,
    "context": context.app,
}
_ALIASES: Final = {"list": "ls", "delete": "rm", "sd": "step-down"}

for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
for _name, _family in _FAMILIES.items():
    app.add_typer(_family, name=_name)
for _name, _known in _ALIASES.items():
    app.command(_name, hidden=True)(_COMMANDS[_known])


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"echelon {version('echelon')}")
        except PackageNotFoundError:
            typer.echo("echelon, not installed")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="URL", help="nats://… or kafka://…; else $ECHELON_URL.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A named connection; else $ECHELON_CONTEXT.")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; also with $NO_COLOR.")] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="How to log, on stderr.")
    ] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what goes well, too.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    import os

    if no_color or os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.obj = Connection(broker, context)
    from echelon.cli.logs import set_up

    set_up(as_json=log_format == "json", verbose=verbose)
