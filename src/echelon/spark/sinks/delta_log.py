"""A Delta table, and the numbers that its log keeps by name: Delta calls them application transactions."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from echelon.errors import BrokerError, Denied, EchelonError, MissingComponent, StorageFull, Unreachable

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.fs import DeltaStorageHandler
except ModuleNotFoundError as missing:
    raise MissingComponent("deltalake is not installed", remedy="Run: pip install 'echelon[spark]'") from missing

_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")
# A signature may follow.
_QUERY: Final = re.compile(r"(\w+://[^\s?]*)\?\S*")
_DENIED: Final = re.compile(r"\b403\b|AccessDenied|Forbidden|Unauthorized|Permission denied|PermissionDenied")
_FULL: Final = re.compile("No space left|QuotaExceeded")


class DeltaLog:
    """The table at `path`, as of the last `refresh`. All methods block.

    Delta itself looks up each number in the log's files, from the newest backwards. Here a number is looked up once,
    and then followed from commit to commit.
    """

    def __init__(self, path: str, storage_options: Mapping[str, str]) -> None:
        self.path = path
        self._options = dict(storage_options)
        self._numbers: dict[str, int | None] = {}
        self._version = 0
        self.table: DeltaTable | None = None

    def refresh(self) -> None:
        """Read what was committed since. `table` stays None while there is no table. Raises OSError, DeltaError."""
        if self.table is None:
            self._load()
            return
        self.table.update_incremental()
        # The table may have moved before that: some of its own commits take it with them.
        for version in range(self._version + 1, self.table.version() + 1):
            try:
                actions = self.commit(version)
            except FileNotFoundError:  # So old that Delta has removed it.
                self._load()
                return
            for action in actions:
                if "txn" in action:
                    self._numbers[action["txn"]["appId"]] = action["txn"]["version"]
            self._version = version

    def forget(self) -> None:
        """Let the next `refresh` read everything anew, after an error that may lie in what is known."""
        self.table = None

    def number(self, name: str) -> int | None:
        """What the table keeps under this name, as of the last `refresh`."""
        if self.table is None:
            return None
        if name not in self._numbers:
            self._numbers[name] = self.table.transaction_version(name)
        return self._numbers[name]

    def _load(self) -> None:
        self._numbers.clear()
        try:
            self.table = DeltaTable(self.path, storage_options=self._options)
        except TableNotFoundError:
            self.table = None
        else:
            self._version = self.table.version()

    def commit(self, version: int) -> list[dict[str, Any]]:
        """The actions of one commit, as the log has them. Raises FileNotFoundError if it has them no more."""
        with self.files().open_input_file(f"_delta_log/{version:020}.json") as file:
            return [json.loads(line) for line in file.read().splitlines()]

    def files(self) -> fs.FileSystem:
        """The table's folder, wherever that is."""
        return open_folder(self.path, self._options)


def open_folder(path: str, storage_options: Mapping[str, str]) -> fs.FileSystem:
    """A table's folder, wherever that is; also for tasks."""
    return fs.PyFileSystem(DeltaStorageHandler(path, dict(storage_options)))


def local_folder(path: str) -> Path | None:
    """Where the table is on this machine. None: it is in an object store."""
    scheme, found, rest = path.partition("://")
    if not found:
        return Path(path)
    return Path(rest) if scheme == "file" else None


def fault(error: Exception, path: str) -> EchelonError:
    """What to raise for an error of the table or its store, without what may be secret."""
    said = _QUERY.sub(r"\1", _COLOURS.sub("", str(error)))
    words = f"the Delta table {path}: {said}"
    if _DENIED.search(words):
        return Denied(words, remedy="Check the credentials, and what they allow")
    if _FULL.search(words):
        return StorageFull(words, remedy="Make room where the table is stored")
    if isinstance(error, OSError | CommitFailedError):  # Others were faster, again and again.
        return Unreachable(words, remedy="Check that the store can be reached")
    return BrokerError(words)


__all__ = ["CommitFailedError", "DeltaError", "DeltaLog", "DeltaTable", "fault", "local_folder", "open_folder"]
