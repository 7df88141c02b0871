"""All commands, put together."""

from typing import Annotated

import typer

from echelon.cli import local
from echelon.cli.run import run

app = typer.Typer(
    name="echelon",
    help="Consumer groups on NATS JetStream and Kafka, for Python processes and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(local.app, name="local")
app.command()(run)


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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
