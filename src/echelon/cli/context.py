"""`echelon context`: named connections."""

from typing import Annotated

import typer

from echelon.cli.output import Format, FormatOption, show
from echelon.errors import InvalidConfig

app = typer.Typer(help="Named connections, kept in a file of yours.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The context.", show_default=False)]


@app.command("ls")
def ls(output: FormatOption = Format.table) -> None:
    """List the contexts. Passwords are not shown."""
    from echelon.cli.contexts import Contexts, shown, without_password

    contexts = Contexts()
    rows = [
        {
            "context": name,
            "default": name == contexts.default,
            "url": without_password(str(options.get("url", ""))),
            "options": shown({n: v for n, v in options.items() if n != "url"}),
        }
        for name, options in sorted(contexts.all.items())
    ]
    show(rows, output, empty="there are no contexts; make one with: echelon context add NAME URL")


@app.command("add")
def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="nats://… or kafka://…", show_default=False)],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the broker, as creds=FILE.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Make it the default.")] = False,
) -> None:
    """Add a context, or replace it. The first one is the default."""
    from echelon.cli.contexts import Contexts, config_file

    if "://" not in url:
        raise InvalidConfig("that is no URL of a broker", remedy="Write nats://host:port or kafka://host:port")
    contexts = Contexts()
    contexts.all[name] = {"url": url, **dict(_pair(each) for each in option or ())}
    if default or contexts.default is None:
        contexts.default = name
    contexts.save()
    typer.echo(f"kept {name} in {config_file()}", err=True)


@app.command("use")
def use(name: NameArgument) -> None:
    """Make a context the default."""
    from echelon.cli.contexts import Contexts

    contexts = Contexts()
    contexts.find(name)
    contexts.default = name
    contexts.save()


@app.command("rm")
def rm(name: NameArgument) -> None:
    """Forget a context."""
    from echelon.cli.contexts import Contexts

    contexts = Contexts()
    contexts.check(name)
    del contexts.all[name]
    if contexts.default == name:
        contexts.default = None
    contexts.save()


def _pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        raise InvalidConfig(f"'{text}' is no option", remedy="Write --option name=value")
    return name, value
