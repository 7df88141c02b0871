"""What the tests expect of the table that a Spark application has written."""

import json
from collections.abc import Mapping

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.spark.seats.spark_stage import SparkStage


async def until_done(stage: SparkStage, seconds: float = 60.0) -> None:
    """Wait until the group has reported everything that was sent."""
    held = {name: messages[-1].sequence for name, messages in (await stage.stored()).items() if messages}
    await stage.until_world(lambda world: all(world.partitions[name].position > held[name] for name in held), seconds)


async def check_table(stage: SparkStage) -> None:
    """Every message is in the table once, and each commit goes on where the one before ended, in every partition."""
    stored = {name: [message.sequence for message in found] for name, found in (await stage.stored()).items()}
    found: dict[str, list[int]] = {name: [] for name in stored}
    for rows in commits(stage):
        for name in stored:
            found[name] += sorted(sequence for partition, sequence in rows if partition == name)
    assert found == stored


async def check_written_again(stage: SparkStage, positions: Mapping[str, int], version: int) -> None:
    """What lies past the positions, and nothing else, is in the table by commits after this version."""
    past = {
        (name, message.sequence)
        for name, found in (await stage.stored()).items()
        for message in found
        if message.sequence >= positions[name]
    }
    rows = [row for rows in commits(stage)[version + 1 :] for row in rows]
    assert past
    assert {row for row in rows if row[1] >= positions[row[0]]} == past


def commits(stage: SparkStage) -> list[list[tuple[str, int]]]:
    """Partition and sequence of the rows that the table has now, in the order of the commits that added them."""
    folder = stage.folder / "table"
    there = set(DeltaTable(folder).file_uris())
    found: list[list[tuple[str, int]]] = []
    for log in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        files = [folder / action["add"]["path"] for action in actions if "add" in action]
        rows: list[tuple[str, int]] = []
        for file in files:
            if any(uri.endswith(file.name) for uri in there):
                table = pq.read_table(file, columns=["partition", "sequence"]).to_pydict()
                rows += zip(table["partition"], table["sequence"], strict=True)
        found.append(rows)
    return found
