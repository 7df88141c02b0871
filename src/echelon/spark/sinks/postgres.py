"""Exactly once into a PostgreSQL table: the rows of a batch and the positions of its parts are one transaction."""

import asyncio
import io
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from echelon.errors import InvalidConfig, NotReversible
from echelon.members.sinks.base import Place
from echelon.members.sinks.kept import commit_kept
from echelon.members.sinks.postgres import Connection, Cursor, PostgresSink
from echelon.spark.sinks.base import Part

_TYPES: Final[dict[type[DataType], str]] = {
    StringType: "text",
    BinaryType: "bytea",
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
    ArrayType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}
_NESTED: Final = (ArrayType, MapType, StructType)
# Unquoted and empty is null to PostgreSQL, and nothing else is.
_FORMAT: Final = csv.WriteOptions(include_header=False, quoting_style="all_valid")
_ROWS_AT_ONCE: Final = 10_000
# Held while the table is made: CREATE TABLE IF NOT EXISTS alone fails if two do it at once. Any number will do.
_MAKING: Final = 7_262_018_444
_COLUMNS: Final = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"


class PostgresBatchSink:
    """A sink in the `table` (`name` or `schema.name`) of the PostgreSQL database at `conninfo`.

    Positions are in the table `positions` of the same database, as those of `PostgresSink`, and so is what `timeout`
    means; a batch is stored 10,000 rows at a time, each of which may take that long.

    The first write makes the table, with the results' columns; arrays, maps and structs become `jsonb`. If it is there
    it may have more columns, and PostgreSQL must be able to read the values from text. A batch passes through the
    driver's memory, so it should be no larger than that.

    A reset deletes the rows whose `partition` is the partition's and whose `sequence` is not below the position. So a
    table belongs to one group, and if it has no such columns, a reset to an earlier position has to keep the output.
    """

    def __init__(
        self, conninfo: str, table: str, *, positions: str = "echelon_positions", timeout: float = 10.0
    ) -> None:
        self._table = sql.Identifier(*table.split("."))
        # Two, because each belongs to one thread.
        self._opener = PostgresSink(conninfo, self._take_back, table=positions, timeout=timeout)
        self._writer = _Writer(conninfo, table=positions, timeout=timeout)

    async def __aenter__(self) -> Self:
        """Connect, and make the table for positions if it is not there. Raises Denied, Unreachable."""
        await self._opener.__aenter__()
        try:
            await self._writer.__aenter__()
        except BaseException:
            await self._opener.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._writer.__aexit__()
        await self._opener.__aexit__()

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `BatchSink.open` describes it."""
        return await self._opener.open(place, epoch=epoch, reset=reset, position=position, keep=keep)

    def write(self, frame: DataFrame, parts: Sequence[Part]) -> bool:
        """Store the results, and the positions of all parts, in one transaction.

        Raises InvalidConfig for columns that PostgreSQL has no type for, PostgreSQL's own errors about the rows, and
        what Spark raises for the results.
        """
        fields = frame.schema.fields
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type(field))) for field in fields
        )
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._table, columns)
        if not asyncio.run(self._writer.prepare(self._table, create, parts)):
            return False
        rows = frame.select([_as_text(field) for field in fields]).toArrow()
        names = sql.SQL(", ").join(sql.Identifier(field.name) for field in fields)
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self._table, names)
        return asyncio.run(self._writer.store(copy, rows, parts))

    def _take_back(self, cursor: Cursor, partition: str, position: int) -> None:
        columns = {name for (name,) in cursor.execute(_COLUMNS, (self._table.as_string(cursor),))}
        if not columns:
            return  # Nothing was ever written.
        if not columns >= {"partition", "sequence"}:
            raise NotReversible(
                f"partition {partition} is reset to {position}, and the results past that cannot be told from others",
                remedy="Give the results the columns partition and sequence, or reset again and keep the output",
            )
        delete = sql.SQL("DELETE FROM {} WHERE partition = %s AND sequence >= %s").format(self._table)
        cursor.execute(delete, (partition, position))


class _Writer(PostgresSink):
    """A sink for transactions over several partitions."""

    async def prepare(self, table: sql.Identifier, create: sql.Composed, parts: Sequence[Part]) -> bool:
        """Make the table if it is not there. False: the batch would be refused as things are."""
        async with self._session() as session:
            return await session.run(partial(self._prepare, session.connection, table, create, parts))

    async def store(self, copy: sql.Composed, rows: pa.Table, parts: Sequence[Part]) -> bool:
        """Store the rows and the positions."""
        async with self._session() as session:
            await session.run(partial(session.connection.execute, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
            for some in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
                await session.run(partial(_copy, session.connection, copy, some))
            return await session.run(partial(self._commit_all, session.connection, parts))

    def _prepare(
        self, connection: Connection, table: sql.Identifier, create: sql.Composed, parts: Sequence[Part]
    ) -> bool:
        if not self._advance(connection, parts):
            return False
        connection.rollback()
        [[there]] = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),))
        if there is None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            connection.execute(create)
            connection.commit()
        return True

    def _commit_all(self, connection: Connection, parts: Sequence[Part]) -> bool:
        try:
            done = self._advance(connection, parts)
            if done:
                connection.commit()
        except psycopg.errors.DeadlockDetected:
            return False
        return done

    def _advance(self, connection: Connection, parts: Sequence[Part]) -> bool:
        """Write the parts' positions, not yet committed. False: at least one is refused."""
        # All take the locks in the same order, so that nobody waits for somebody who waits for him.
        for part in sorted(parts, key=lambda part: (part.place.group, part.place.partition)):
            before = self._read(connection, part.place)
            after = commit_kept(before, part.place, epoch=part.epoch, begin=part.begin, end=part.end)
            if after is None:
                return False
            self._write(connection, part.place, after)
        return True


def _copy(connection: Connection, query: sql.Composed, rows: pa.RecordBatch) -> None:
    text = io.BytesIO()
    csv.write_csv(rows, text, _FORMAT)
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.write(text.getbuffer())


def _type(field: StructField) -> str:
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision}, {kind.scale})"
    for known, name in _TYPES.items():
        if isinstance(kind, known):
            return name
    raise InvalidConfig(
        f"PostgreSQL has no type for the column {field.name}, which is {kind.simpleString()}",
        remedy="Cast it, or leave it out",
    )


def _as_text(field: StructField) -> Column:
    """The column, in a type whose text PostgreSQL reads as its own."""
    column = functions.col(f"`{field.name}`")
    if isinstance(field.dataType, _NESTED):
        return functions.to_json(column)
    if isinstance(field.dataType, BinaryType):
        return functions.concat(functions.lit("\\x"), functions.hex(column))
    return column
