"""The root of the command line: options that hold for all commands, and what becomes of errors."""

import sys
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
        return super().parse_args(ctx, options_first(args))

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # the same
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except EchelonError as error:
            typer.echo(_told(error, as_json=ctx.params.get("log_format") == "json"), err=True)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read the output has enough of it. Python would complain once more when it ends.
            sys.stdout = None  # so that nothing is flushed any more
            raise typer.Exit(0) from None


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
