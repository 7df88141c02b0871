"""`echelon audit`: whether every message that a group has processed is in its sink, once and in order."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import Connection, GroupArgument
from echelon.cli.exits import NOT_EXACT
from echelon.cli.output import Format, FormatOption, show, show_one
from echelon.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from echelon.group.world import World
    from echelon.model import Bounds


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
    """Compare a group's messages with what its sink holds of them: lost, duplicated, out of order.

    Every message between the group's first positions and its positions now is looked for. Exits with 11 if one is not
    there exactly once and in order; names the first of them.
    """
    import asyncio

    from msgspec import structs

    from echelon.spark.audit import audit as compare

    if sum(each is not None for each in (delta, postgres, stream)) != 1:
        raise InvalidConfig(
            "an audit is of one sink", remedy="Say --delta PATH, --postgres URL --table T, or --stream S"
        )
    if postgres is not None and table is None:
        raise InvalidConfig("--postgres needs a table", remedy="Say --table NAME")
    connection: Connection = ctx.obj
    url, options = connection.find()
    world = asyncio.run(_world(url, options, group))
    spark, messages = _messages(url, options, group, master, world)
    try:
        results = _results(spark, url, options, delta, postgres, table, stream)
        found = compare(messages, results, bounds=_bounds(world), since=_since(world, group, delta))
    finally:
        spark.stop()
    summary = structs.asdict(found)
    offenders = [{**structs.asdict(each), "key": _key(each.key)} for each in summary.pop("offenders")]
    show_one({**summary, "offenders": offenders} if output is Format.json else summary, output)
    if output is Format.table and offenders:
        typer.echo()
        show(offenders, output)
    if not found.is_exact:
        raise typer.Exit(NOT_EXACT)


def _key(key: bytes | None) -> str | None:
    from echelon.keys import key_name

    return None if key is None else key_name(key)


async def _world(url: str, options: "Mapping[str, object]", group: str) -> "World":
    from echelon.brokers.connect import open_broker
    from echelon.cli.connection import world_of

    async with open_broker(url, **options) as broker:
        return await world_of(broker, group, "positions")


def _messages(
    url: str, options: "Mapping[str, object]", group: str, master: str, world: "World"
) -> "tuple[SparkSession, DataFrame]":
    import json

    from echelon.spark.session import build_session

    spark = build_session("echelon audit", master=master)
    reader = spark.read.format("echelon").option("broker", url).option("group", group)
    for name, value in options.items():
        reader = reader.option(f"broker.{name}", str(value))
    ends = {partition.name: partition.position for partition in world.partitions.values()}
    return spark, reader.option("endingPositions", json.dumps(ends)).load()


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


def _bounds(world: "World") -> "dict[str, Bounds]":
    from echelon.model import Bounds

    assert world.config is not None
    first = world.config.positions
    return {name: Bounds(first[name], partition.position) for name, partition in world.partitions.items()}


def _since(world: "World", group: str, delta: str | None) -> "dict[str, int] | None":
    """From where results count in partitions whose last reset let the sink keep what lay past it."""
    from echelon.spark.results import delta_versions_of_resets

    kept = {name: partition.reset for name, partition in world.partitions.items() if partition.reset and partition.keep}
    if not kept or delta is None:
        return None
    return delta_versions_of_resets(delta, group, kept)
