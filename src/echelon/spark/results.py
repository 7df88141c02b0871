"""What sinks hold, as frames for the audit: the `partition` and `sequence` of each result's message, and an `order`.

`order` is evidence of the store itself of when a result became visible, and nothing that the pipeline wrote.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import csv, fs, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it

from echelon.errors import InvalidConfig, UnknownName
from echelon.extras import extra
from echelon.spark.sinks.delta_log import DeltaError, DeltaLog, fault, open_folder
from echelon.spark.sinks.streams import ORIGIN

_SCHEMA: Final = pa.schema([("partition", pa.string()), ("sequence", pa.int64()), ("order", pa.int64())])
_COLUMNS: Final = "partition string, sequence bigint, order bigint"
_FILES_A_TASK: Final = 20


def check_delta(path: str, storage_options: Mapping[str, str] | None = None) -> DeltaLog:
    """The log of a Delta table whose rows tell their messages. Needs no Spark.

    Raises UnknownName if there is no table, InvalidConfig if it lacks the columns, Denied, Unreachable, BrokerError.
    """
    log = DeltaLog(path, dict(storage_options or {}))
    try:
        log.refresh()
    except (OSError, DeltaError) as error:
        raise fault(error, path) from error
    if log.table is None:
        raise UnknownName(f"there is no Delta table at {path}", remedy="Check the path")
    _check({field.name for field in log.table.schema().fields}, f"the Delta table {path}")
    return log


def delta_results(spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None) -> DataFrame:
    """The rows of a Delta table. Their order is the version of the commit that added them.

    It is null for rows that were moved since: by `optimize`, or by a reset that took back other rows of the same file.
    Raises as `check_delta` does.
    """
    options = dict(storage_options or {})
    log = check_delta(path, options)
    assert log.table is not None
    if pa.table(log.table.deletion_vectors().read_all()).num_rows:
        raise InvalidConfig(
            f"the Delta table {path} has deletion vectors, which cannot be read here",
            remedy="Have them purged by whoever wrote them",
        )
    versions = _versions(log)
    files = [
        (row["path"], versions.get(unquote(row["path"])), row.get("partition.partition"))
        for row in pa.table(log.table.get_add_actions(flatten=True)).to_pylist()
    ]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = open_folder(path, options)
        for batch in batches:
            for file in batch.to_pylist():
                yield from _read_file(folder, **file).to_batches()

    listed = spark.createDataFrame(files, "path string, version bigint, partition string")
    return listed.repartition(max(1, len(files) // _FILES_A_TASK)).mapInArrow(read, _COLUMNS)


def delta_versions_of_resets(
    path: str, group: str, resets: Mapping[str, int], storage_options: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The version up to which each partition's results are older than its reset, for `audit(since=...)`.

    `resets` are the sequences of the resets in the group's log. Partitions that were not opened since are left out.
    """
    log = DeltaLog(path, dict(storage_options or {}))
    log.refresh()
    names = {f"echelon/{group}/{partition}/fence": partition for partition in resets}
    found: dict[str, int] = {}
    for version in range(log.table.version() if log.table else -1, -1, -1):
        try:
            actions = log.commit(version)
        except FileNotFoundError:
            break
        for action in actions:
            partition = names.get(action.get("txn", {}).get("appId"))
            if partition is not None and action["txn"]["version"] >= resets[partition]:
                found[partition] = version
    return found


def check_postgres(conninfo: str, table: str) -> None:
    """See that the rows of a PostgreSQL table can be read, and tell their messages. Needs no Spark.

    Raises UnknownName if there is no table, InvalidConfig if it lacks the columns, Denied, Unreachable.
    """
    with extra("postgres", "psycopg"):
        import psycopg
        from psycopg import sql

        from echelon.members.sinks.postgres import connected
    query = sql.SQL("SELECT partition, sequence, xmin FROM {} LIMIT 0").format(sql.Identifier(*table.split(".")))
    try:
        with connected(conninfo) as connection:
            connection.execute(query)
    except psycopg.errors.UndefinedTable as error:
        raise UnknownName(f"there is no table {table} in that database", remedy="Check its name") from error
    except psycopg.Error as error:
        raise InvalidConfig(
            f"the table {table} cannot be audited: {error.diag.message_primary}",
            remedy="Name a table, no view, that keeps the columns partition and sequence of a result's message",
        ) from error


def postgres_results(spark: SparkSession, conninfo: str, table: str) -> DataFrame:
    """The rows of a PostgreSQL table. Their order is the number of the transaction that wrote them.

    A sink's transactions for a partition follow each other, so their numbers grow. It is null for rows that PostgreSQL
    knows no number of any more; a row that was updated, or restored from a dump, counts as written then. All rows pass
    through the driver's memory, with these three columns. Raises InvalidConfig, Denied, Unreachable, and PostgreSQL's
    own errors: `check_postgres` tells before whether there will be any.
    """
    with extra("postgres", "psycopg"):
        from psycopg import sql

        from echelon.members.sinks.postgres import connected
    name = sql.Identifier(*table.split("."))
    query = sql.SQL(
        "COPY (SELECT partition, sequence, CASE WHEN age(xmin) < 2147483647 "
        "THEN pg_current_xact_id()::text::bigint - age(xmin) END FROM {}) TO STDOUT (FORMAT csv)"
    ).format(name)
    text = io.BytesIO()
    with connected(conninfo) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for some in copy:
                text.write(some)
    if not text.tell():
        return spark.createDataFrame([], _COLUMNS)
    text.seek(0)
    convert = csv.ConvertOptions(column_types=_SCHEMA, strings_can_be_null=False)
    return spark.createDataFrame(csv.read_csv(text, csv.ReadOptions(column_names=_SCHEMA.names), None, convert))


def stream_results(frame: DataFrame) -> DataFrame:
    """The messages that a `StreamSink` has sent, from the target as `spark.read.format("echelon")` gives it.

    Their order is that of the target, so the results of a key must be in one partition of it, as they are if they
    have its key. Messages without the header `Echelon-Origin` are left out.
    """
    origin = F.expr(f"get(filter(headers, header -> header.name = '{ORIGIN}'), 0).value").cast("string")
    found = frame.select(origin.alias("origin"), F.col("sequence").alias("order")).where("origin IS NOT NULL")
    return found.select(
        F.regexp_extract("origin", "^(.*):", 1).alias("partition"),
        F.regexp_extract("origin", ":([0-9]+)$", 1).cast("bigint").alias("sequence"),
        "order",
    )


def _versions(log: DeltaLog) -> dict[str, int]:
    """The version that added each file, unless its commit also removed some: then it only moved their rows."""
    assert log.table is not None
    versions: dict[str, int] = {}
    for version in range(log.table.version(), -1, -1):
        try:
            actions = log.commit(version)
        except FileNotFoundError:
            break
        if not any("remove" in action for action in actions):
            versions.update({unquote(action["add"]["path"]): version for action in actions if "add" in action})
    return versions


def _read_file(folder: fs.FileSystem, path: str, version: int | None, partition: str | None) -> pa.Table:
    """A file's rows. If the table is partitioned by `partition`, the file itself does not have it."""
    names = ["partition", "sequence"] if partition is None else ["sequence"]
    rows = parquet.read_table(path, columns=names, filesystem=folder, partitioning=None)
    partitions = rows["partition"] if partition is None else _constant(partition, rows, pa.string())
    return pa.table([partitions, rows["sequence"], _constant(version, rows, pa.int64())], schema=_SCHEMA)


def _constant(value: object, like: pa.Table, kind: pa.DataType) -> pa.Array:
    return pa.array([value] * like.num_rows, kind)


def _check(names: set[str], what: str) -> None:
    if not names >= {"partition", "sequence"}:
        raise InvalidConfig(
            f"{what} has no columns partition and sequence, so that nobody can tell a result's message",
            remedy="Keep these columns of the message that a result is made from",
        )
