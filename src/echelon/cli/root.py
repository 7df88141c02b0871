"""The root of the command line: options that hold for all commands, and what becomes of errors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

import typer
from typer.core import TyperGroup

from echelon.cli.exits import INTERRUPTED, exit_code, message
from echelon.errors import EchelonError

_WITH_VALUE: Final = ("--broker", "--context", "--log-format")
_SWITCHES: Final = ("--no-color", "--verbose")


class Root(TyperGroup):
    """Takes its own options anywhere on the line, and turns errors into a few lines and an exit code."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's Context is click's
        """Parse what comes after `echelon`."""
        words = options_first(args)
        as_json = "--log-format=json" in words or ("--log-format", "json") in pairwise(words)
        with _told_usage(ctx, as_json=as_json):
            return super().parse_args(ctx, words)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # the same
        """Run the command that was asked for."""
        as_json = ctx.params.get("log_format") == "json"
        try:
            with _told_usage(ctx, as_json=as_json):
                return super().invoke(ctx)
        except EchelonError as error:
            typer.echo(_told(error, as_json=as_json), err=True)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read the output has enough of it. Python would complain once more when it ends.
            sys.stdout = None  # so that nothing is flushed any more
            raise typer.Exit(0) from None


@contextmanager
def _told_usage(ctx: typer.Context, *, as_json: bool) -> Iterator[None]:
    """Tell of a mistake in the command line as JSON; else typer tells of it."""
    try:
        yield
    except typer.TyperException as error:
        if not as_json or type(error).__name__ == "NoArgsIsHelpError":  # Which typer does not give out.
            raise
        from echelon.cli.logs import error_line

        place = getattr(error, "ctx", None) or ctx
        remedy = f"Try '{place.command_path} -h' for help"
        typer.echo(error_line(error.format_message(), remedy, error.exit_code), err=True)
        raise typer.Exit(error.exit_code) from None


def _told(error: EchelonError, *, as_json: bool) -> str:
    if not as_json:
        return message(error)
    from echelon.cli.logs import error_line

    return error_line(error.what, error.remedy, exit_code(error))


def options_first(words: list[str]) -> list[str]:
    """The words with the options of the root before all others, up to a `--`."""
    first: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += [word, *left]
            break
        if word in _WITH_VALUE and left:
            first += [word, left.pop(0)]
        elif word in _SWITCHES or word.partition("=")[0] in _WITH_VALUE:
            first.append(word)
        else:
            rest.append(word)
    return first + rest
