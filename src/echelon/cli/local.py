"""`echelon local`: real servers on this machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.output import Format, FormatOption, show
from echelon.errors import InvalidConfig

if TYPE_CHECKING:
    from echelon.local import Server

app = typer.Typer(help="A real nats-server and a real Kafka on this machine.", no_args_is_help=True)


class Name(StrEnum):
    """The servers there are."""

    nats = "nats"
    kafka = "kafka"


NameArgument = Annotated[Name, typer.Argument(metavar="SERVER", help="Which server.", show_default=False)]
AnyName = Annotated[
    Name | None, typer.Argument(metavar="SERVER", help="Which server; without it, both.", show_default=False)
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The server's data folder.", show_default="~/.local/state/echelon/NAME"),
]
PortOption = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="The port.", show_default="the last one, or a free one")
]


@app.command()
def up(name: NameArgument, data: DataOption = None, port: PortOption = None) -> None:
    """Start a server, and print its URL when it answers. The server goes on running; its data is kept."""
    import shlex

    from echelon.cli.logs import tell_progress

    tell_progress("echelon.local.jars")  # The first time, it is a minute's download.
    server = _server(name, data, port)
    is_new = server.start()
    option = f" --data {shlex.quote(str(data))}" if data else ""
    typer.echo(f"{name} is up{'' if is_new else ' already'}. Stop it with: echelon local down {name}{option}", err=True)
    typer.echo(server.url)


@app.command()
def down(name: AnyName = None, data: DataOption = None) -> None:
    """Stop a server. Its data is kept for the next time."""
    for server in _servers(name, data):
        typer.echo(f"{server.name} is down" if server.stop() else f"{server.name} was not up")


@app.command()
def status(data: DataOption = None, output: FormatOption = Format.table) -> None:
    """Show which servers are up."""
    rows = []
    for server in _servers(None, data):
        state = server.status()
        is_running = state in {"up", "not answering"}
        rows.append(
            {
                "server": server.name,
                "state": state,
                "url": server.url if is_running else None,
                "pid": server.pid if is_running else None,
                "data": str(server.data),
            }
        )
    show(rows, output)


def _servers(name: Name | None, data: Path | None) -> list["Server"]:
    """The named server; or the one in the given folder; or all in their own folders."""
    from echelon.local.server import read_state

    if name is not None:
        return [_server(name, data)]
    if data is None:
        return [_server(each) for each in Name]
    state = read_state(data)
    if state is None:
        raise InvalidConfig(f"no server was ever started in {data}")
    return [_server(Name(state.server), data)]


def _server(name: Name, data: Path | None = None, port: int | None = None) -> "Server":
    from echelon.local import KafkaServer, NatsServer, default_data

    kind = NatsServer if name is Name.nats else KafkaServer
    return kind(data or default_data(name), port=port)
