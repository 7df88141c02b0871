"""Exactly once into a Delta table: files that tasks wrote, and positions, become visible in one commit."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from deltalake import Schema
from deltalake.transaction import AddAction, CommitProperties, Transaction, create_table_with_add_actions
from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DateType, IntegralType, StringType, StructType

from echelon.errors import InvalidConfig
from echelon.group.delivery import SinkState
from echelon.members.sinks.base import Place
from echelon.members.sinks.kept import Kept, commit_kept, falls_back, not_reversible, open_kept
from echelon.spark.sinks.base import Part
from echelon.spark.sinks.delta_files import FILE_COLUMNS, file_writer, to_action
from echelon.spark.sinks.delta_log import CommitFailedError, DeltaError, DeltaLog, fault, local_folder

# Somebody else's commit may come in between that often.
_TRIES: Final = 20
_ORIGIN: Final = frozenset({"partition", "sequence"})


class DeltaSink:
    """A sink in the Delta table at `path`: a folder that all executors share, or an address that `deltalake` takes.

    The first write makes the table, with the results' columns, `partition_by` and `properties`; later results must
    have the same columns. `storage_options` are those of `deltalake`; they go to the tasks, and nowhere else.

    Tasks write a file each, as many as can run at once, and one commit adds them all. The commit also holds each part's
    epoch and position, as application transactions named `echelon/<group>/<partition>/...`; Delta refuses it if another
    commit has changed one of these meanwhile. Until there is a table an epoch cannot be written: whoever commits first
    is then right, and everybody else has to open again. Files that are not committed are seen by no reader, and removed
    by `vacuum`.

    A reset deletes the rows whose `partition` is the partition's and whose `sequence` is not below the position, in
    the commit that writes the epoch. So a table belongs to one group, and if it has no such columns, a reset to an
    earlier position has to keep the output.

    Delta writes a checkpoint of its log every 100 commits (`delta.checkpointInterval`). Small files are for
    `DeltaTable(path).optimize.compact()`, at any time and in any process.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._path = str(path)
        self._partition_by = list(partition_by)
        self._properties = dict(properties or {})
        self._options = dict(storage_options or {})
        self._log = DeltaLog(self._path, self._options)
        self._lock = Lock()  # Held from reading the log to the commit that relies on it.
        self._unwritten: dict[tuple[str, str], Kept] = {}  # What was opened before there was a table.

    async def __aenter__(self) -> Self:
        """Look for the table. Raises Unreachable, Denied."""
        await asyncio.to_thread(self._prepare)
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `BatchSink.open` describes it."""
        return await asyncio.to_thread(
            self._open, _numbered(place), epoch=epoch, reset=reset, position=position, keep=keep
        )

    def write(self, frame: DataFrame, parts: Sequence[Part]) -> bool:
        """Store the results, and the positions of all parts, in one commit.

        Raises InvalidConfig if the table has other columns, and what Spark raises for the results.
        """
        parts = [replace(part, place=_numbered(part.place)) for part in parts]
        try:
            with self._lock:
                self._log.refresh()
                if self._committed(parts) is None:
                    return False
                columns, partition_by = self._layout(frame.schema)
            writer = file_writer(self._path, self._options, partition_by)
            # No more files than tasks that can run at once, which for small batches is also quicker.
            few = frame.select(columns).coalesce(frame.sparkSession.sparkContext.defaultParallelism)
            files = [to_action(row) for row in few.mapInArrow(writer, FILE_COLUMNS).collect()]
            self._check_files(files)
            with self._lock:
                return self._write(frame.schema, files, parts)
        except (OSError, DeltaError) as error:
            raise fault(error, self._path) from error

    def _prepare(self) -> None:
        try:
            if folder := local_folder(self._path):
                folder.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._log.refresh()
        except (OSError, DeltaError) as error:
            raise fault(error, self._path) from error

    def _open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        last: Exception | None = None
        with self._lock:
            for _ in range(_TRIES):
                try:
                    self._log.refresh()
                    before = self._read(place)
                    after = open_kept(before, place, epoch=epoch, reset=reset, position=position)
                    if after is None:
                        return None
                    self._write_epoch(place, after, take_back=falls_back(before, after) and not keep)
                except CommitFailedError as error:
                    last = error
                except DeltaError as error:
                    last = error
                    self._log.forget()
                except OSError as error:
                    raise fault(error, self._path) from error
                else:
                    return after.position
        assert last is not None
        raise fault(last, self._path) from last

    def _write_epoch(self, place: Place, kept: Kept, *, take_back: bool) -> None:
        table = self._log.table
        if table is None:
            self._unwritten[place.group, place.partition] = kept
            return
        properties = CommitProperties(app_transactions=self._transactions(place, kept))
        if take_back:
            if not {field.name for field in table.schema().fields} >= _ORIGIN:
                raise not_reversible(place, kept.position)
            name = place.partition.replace("'", "''")
            predicate = f"partition = '{name}' AND sequence >= {kept.position}"
            if table.delete(predicate, commit_properties=properties)["num_removed_files"]:
                return
            # There was nothing to delete, and so no commit.
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    def _write(self, schema: StructType, files: list[AddAction], parts: Sequence[Part]) -> bool:
        last: Exception | None = None
        for _ in range(_TRIES):
            self._log.refresh()
            after = self._committed(parts)
            if after is None:
                return False
            self._layout(schema)
            try:
                self._commit(schema, files, after)
            except CommitFailedError as error:
                last = error
            except DeltaError as error:
                last = error
                self._log.forget()
            else:
                return True
        assert last is not None
        raise last

    def _commit(self, schema: StructType, files: list[AddAction], after: Mapping[Place, Kept]) -> None:
        table = self._log.table
        transactions = [each for place, kept in after.items() for each in self._transactions(place, kept)]
        if table is None:
            # Of several that make the table at once only one may succeed. With tries of its own, Delta lets the others
            # commit after it, without looking at what it has committed.
            create_table_with_add_actions(
                self._path,
                _delta_schema(schema),
                files,
                partition_by=self._partition_by,
                configuration=self._properties,
                storage_options=self._options,
                commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=0),
            )
        else:
            properties = CommitProperties(app_transactions=transactions)
            partition_by = table.metadata().partition_columns
            table.create_write_transaction(
                [*files], "append", table.schema(), partition_by, commit_properties=properties
            )

    def _committed(self, parts: Sequence[Part]) -> dict[Place, Kept] | None:
        """What is to be kept once all parts are committed. None: at least one is refused."""
        found = {}
        for part in parts:
            before = self._read(part.place)
            after = commit_kept(before, part.place, epoch=part.epoch, begin=part.begin, end=part.end)
            if after is None:
                return None
            found[part.place] = after
        return found

    def _read(self, place: Place) -> Kept | None:
        made, identity, fence, committed, position = (self._log.number(name) for name in _names(place))
        if made is None or identity is None or fence is None or committed is None or position is None:
            return self._unwritten.get((place.group, place.partition))
        return Kept(f"{identity:016x}", made, SinkState(fence, committed, position))

    def _transactions(self, place: Place, kept: Kept) -> list[Transaction]:
        """What is to be written: what differs, and always the position, so that no other commit can come between."""
        state = kept.state
        numbers = (kept.made, int(kept.identity, 16), state.fence, state.committed, kept.position)
        *others, (name, position) = zip(_names(place), numbers, strict=True)
        changed = [Transaction(name, number) for name, number in others if self._log.number(name) != number]
        return [*changed, Transaction(name, position)]

    def _layout(self, schema: StructType) -> tuple[list[str], list[str]]:
        """The columns in the table's order, and which of them it is partitioned by. Raises InvalidConfig."""
        table = self._log.table
        if table is None:
            _delta_schema(schema)
            for name in self._partition_by:
                if name not in schema.names or not isinstance(schema[name].dataType, _PARTITIONED_BY):
                    raise InvalidConfig(
                        f"the results cannot be partitioned by {name}",
                        remedy="Choose columns of strings, whole numbers, booleans or dates",
                    )
            return schema.names, self._partition_by
        there, given = _types(json.loads(table.schema().to_json())), _types(json.loads(schema.json()))
        if there != given:
            differing = sorted(name for name in {*there, *given} if there.get(name) != given.get(name))
            raise InvalidConfig(
                f"the Delta table {self._path} has other columns than the results: {', '.join(differing)}",
                remedy="Alter the table, change the results, or give the sink another table",
            )
        partition_by = table.metadata().partition_columns
        if self._partition_by and self._partition_by != partition_by:
            raise InvalidConfig(
                f"the Delta table {self._path} is partitioned by {', '.join(partition_by) or 'nothing'}, and not by "
                f"{', '.join(self._partition_by)}",
                remedy="Leave partition_by out, or give the sink another table",
            )
        return list(there), partition_by

    def _check_files(self, files: Sequence[AddAction]) -> None:
        folder = local_folder(self._path)
        if folder and not all((folder / file.path).exists() for file in files):
            raise InvalidConfig(
                f"the tasks wrote to a folder {folder} of their own, which this machine does not see",
                remedy="Put the table where all executors and the driver reach it",
            )


_PARTITIONED_BY: Final = (StringType, IntegralType, BooleanType, DateType)


def _numbered(place: Place) -> Place:
    """The place with an identity that can be written as a number: Delta keeps nothing else."""
    digest = int.from_bytes(blake2b(place.identity.encode(), digest_size=8).digest()) >> 1
    return replace(place, identity=f"{digest:016x}")


def _names(place: Place) -> list[str]:
    prefix = f"echelon/{place.group}/{place.partition}"
    return [f"{prefix}/{what}" for what in ("made", "identity", "fence", "committed", "position")]


def _delta_schema(schema: StructType) -> Schema:
    """The results' columns, as Delta has them; any may be null."""
    found = json.loads(schema.json())
    for field in found["fields"]:
        field["nullable"] = True
    try:
        return Schema.from_json(json.dumps(found))
    except ValueError as error:
        raise InvalidConfig(f"Delta does not take the results' columns: {error}") from None


def _types(schema: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The types by name, whether they may be null or not."""
    return {field["name"]: _bare(field["type"]) for field in schema["fields"]}


def _bare(kind: object) -> str:
    if isinstance(kind, dict):
        kind = {name: _bare(value) for name, value in kind.items() if name not in _NOT_THE_TYPE}
    elif isinstance(kind, list):
        kind = [_bare(each) for each in kind]
    return json.dumps(kind, sort_keys=True)


_NOT_THE_TYPE: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})
