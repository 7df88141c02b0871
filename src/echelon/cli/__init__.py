"""The `echelon` command. Commands import what they need when they run, so that help comes at once."""

import sys

from echelon.cli.exits import exit_code, message
from echelon.errors import MissingComponent


def main() -> None:
    """Run the command line. What the user can mend is told in a few lines; only a defect shows a traceback."""
    try:
        from echelon.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        missing = MissingComponent("the command line needs typer", remedy="pip install 'echelon[cli]'")
        print(message(missing), file=sys.stderr)
        sys.exit(exit_code(missing))
    app()
