"""The `echelon` command. Commands import what they need when they run, so that help comes at once."""

import sys


def main() -> None:
    """Run the command line. What the user can mend is told in a few lines; only a defect shows a traceback."""
    try:
        _run()
    except KeyboardInterrupt:  # Here while it still imports; the root knows of it later on.
        sys.exit(130)


def _run() -> None:
    from echelon.cli.exits import exit_code, message
    from echelon.errors import MissingComponent

    try:
        from echelon.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        missing = MissingComponent("the command line needs typer", remedy="pip install 'echelon[cli]'")
        print(message(missing), file=sys.stderr)
        sys.exit(exit_code(missing))
    try:
        app()
    except OSError as error:
        import errno

        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        print(f"error: {error.filename or 'the output'} cannot be written: {error.strerror}", file=sys.stderr)
        sys.stdout = None  # so that nothing is flushed any more
        sys.exit(1)
