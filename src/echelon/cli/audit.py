"""`echelon audit`: whether every message that a group has processed is in its sink, once and in order."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import Connection, GroupArgument
from echelon.cli.exits import NOT_EXACT
from echelon.cli.output import Format, FormatOption, show, show_one
from echelon.errors import EchelonError, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from echelon.group.world import World
    from echelon.model import Bounds, Entry
    from echelon.spark.audit import Audit


def audit(
    ctx: typer.Context,
    group: GroupArgument,
    delta: Annotated[str | None, typer.Option("--delta", metavar="PATH", help="A Delta table.")] = None,
    postgres: Annotated[
        str | None, typer.Option("--postgres", metavar="URL", help="A PostgreSQL database; needs --table.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="The table in it.")] = None,
    stream: Annotated[str | None, typer.Option("--stream", help="A stream or topic on the same broker.")] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    output: FormatOption = Format.table,
) -> None:
    """Look for messages that were lost, duplicated or out of order.

    A group's messages are compared with what its sink holds of them: all between the group's first positions and its
    positions now. Exits with 11 if one is not there exactly once and in order; names the first of them.
    """
    import asyncio

    from echelon.extras import extra

    with extra("spark", "pyspark"):
        from pyspark.errors import PySparkException

        from echelon.spark.audit import audit as compare
        from echelon.spark.query import first_line
        from echelon.spark.session import build_session, stop_session
    if sum(each is not None for each in (delta, postgres, stream)) != 1:
        raise InvalidConfig(
            "an audit is of one sink", remedy="Say --delta PATH, --postgres URL --table T, or --stream S"
        )
    if postgres is not None and table is None:
        raise InvalidConfig("--postgres needs a table", remedy="Say --table NAME")
    connection: Connection = ctx.obj
    url, options = connection.find()
    world, begins = asyncio.run(_world(url, options, group, stream))
    kept = _kept(world)
    if kept and delta is None:
        raise InvalidConfig(
            f"a reset of {group} let its sink keep the output, and only a Delta table tells what is older than that",
            remedy="Delete the results from before the reset, and reset again without --keep-output",
        )
    _check_table(delta, postgres, table)
    try:
        spark = build_session("echelon audit", master=master)
        try:
            messages = _messages(spark, url, options, group, world, begins)
            results = _results(spark, url, options, delta, postgres, table, stream)
            found = compare(messages, results, bounds=_bounds(world, begins), since=_since(kept, group, delta))
        finally:
            stop_session(spark)
    except PySparkException as error:
        raise EchelonError(f"the audit failed: {first_line(error)}") from error
    show_audit(found, output)
    if not found.is_exact:
        raise typer.Exit(NOT_EXACT)


def show_audit(found: "Audit", output: Format) -> None:
    """Print what an audit found; the first offenders too, except in CSV, where all rows have the same columns."""
    from msgspec import structs

    summary = structs.asdict(found)
    offenders = [{**structs.asdict(each), "key": _key(each.key)} for each in summary.pop("offenders")]
    show_one({**summary, "offenders": offenders} if output is Format.json else summary, output)
    if output is Format.table and offenders:
        typer.echo()
        show(offenders, output)


def _key(key: bytes | None) -> str | None:
    from echelon.keys import key_name

    return None if key is None else key_name(key)


async def _world(
    url: str, options: "Mapping[str, object]", group: str, stream: str | None
) -> "tuple[World, dict[str, int]]":
    """The group's world, and from which position on the messages of each partition count.

    Raises StreamNotFound too, if there is no such stream to compare it with.
    """
    from echelon.brokers.connect import open_broker
    from echelon.cli.connection import world_of
    from echelon.spark.options import parse

    async with open_broker(url, **options) as broker:
        world = await world_of(broker, group, "positions")
        assert world.config is not None
        if stream is not None:
            target = parse({"broker": url, "stream": stream}).stream
            assert target is not None
            await broker.prepare(group, target)
        begins = dict(world.config.positions)
        log = await broker.log(group)
        for name, sequence in _kept(world).items():
            begins[name] = _position_of_reset(await log.read(sequence, sequence + 1), name, group)
        return world, begins


def _kept(world: "World") -> dict[str, int]:
    """The partitions whose last reset let the sink keep what lay past it, each with that reset."""
    return {name: partition.reset for name, partition in world.partitions.items() if partition.reset and partition.keep}


def _position_of_reset(entries: "Sequence[Entry]", name: str, group: str) -> int:
    from echelon.group.records import Reset, decode

    for entry in entries:
        record = decode(entry.data)
        if isinstance(record, Reset) and name in record.positions:
            return record.positions[name]
    raise InvalidConfig(
        f"the reset of partition {name} is no longer in the log of {group}, so nobody can tell its range"
    )


def _check_table(delta: str | None, postgres: str | None, table: str | None) -> None:
    """See that the sink can be read while that takes no Spark."""
    from echelon.spark.results import check_delta, check_postgres

    if delta is not None:
        check_delta(delta)
    if postgres is not None:
        assert table is not None
        check_postgres(postgres, table)


def _messages(
    spark: "SparkSession",
    url: str,
    options: "Mapping[str, object]",
    group: str,
    world: "World",
    begins: "Mapping[str, int]",
) -> "DataFrame":
    import json

    reader = spark.read.format("echelon").option("broker", url).option("group", group)
    for name, value in options.items():
        reader = reader.option(f"broker.{name}", str(value))
    ends = {partition.name: partition.position for partition in world.partitions.values()}
    reader = reader.option("startingPositions", json.dumps(begins)).option("endingPositions", json.dumps(ends))
    return reader.load()


def _results(
    spark: "SparkSession",
    url: str,
    options: "Mapping[str, object]",
    delta: str | None,
    postgres: str | None,
    table: str | None,
    stream: str | None,
) -> "DataFrame":
    from echelon.spark.results import delta_results, postgres_results, stream_results

    if delta is not None:
        return delta_results(spark, delta)
    if postgres is not None:
        assert table is not None
        return postgres_results(spark, postgres, table)
    reader = spark.read.format("echelon").option("broker", url).option("stream", stream or "")
    for name, value in options.items():
        reader = reader.option(f"broker.{name}", str(value))
    return stream_results(reader.load())


def _bounds(world: "World", begins: "Mapping[str, int]") -> "dict[str, Bounds]":
    from echelon.model import Bounds

    return {name: Bounds(begins[name], partition.position) for name, partition in world.partitions.items()}


def _since(kept: "Mapping[str, int]", group: str, delta: str | None) -> "dict[str, int] | None":
    """From which version of the table on results count, in partitions whose last reset kept the output."""
    from echelon.spark.results import delta_versions_of_resets

    if not kept or delta is None:
        return None
    return delta_versions_of_resets(delta, group, kept)
