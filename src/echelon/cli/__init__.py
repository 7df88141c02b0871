"""The `echelon` command. Commands import what they need when they run, so that help comes at once."""

import sys

from echelon.errors import EchelonError, MissingComponent


def main() -> None:
    """Run the command line. What the user can mend is told in a few lines; only a defect shows a traceback."""
    try:
        _run()
    except EchelonError as error:
        print(f"error: {error.what}", file=sys.stderr)
        if error.remedy:
            print(error.remedy, file=sys.stderr)
        sys.exit(1)


def _run() -> None:
    try:
        from echelon.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        raise MissingComponent("the command line needs typer", remedy="pip install 'echelon[cli]'") from error
    app()
