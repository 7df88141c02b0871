"""What the tests expect of the table that a Spark application has written."""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.cli.several import Several
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


def audit(stage: SparkStage, several: Several, *sink: str) -> None:
    """`echelon audit` finds every message in the sink, once and in order."""
    words = ("--broker", stage.url, "audit", stage.group, *sink, "--master", "local[2]", "-o", "json")
    count = sum(map(len, stage.sent.values()))
    exact = {"messages": count, "processed": count, "lost": 0, "duplicated": 0, "out_of_order": 0}
    assert json.loads(several.run(*words)) == {**exact, "unexpected": 0, "unjudged": 0, "offenders": []}


async def check_files(stage: SparkStage) -> None:
    """Every message is once, and in order, in the files that Spark's own log of them names."""
    folder = stage.folder / "files"
    found: dict[str, list[int]] = {str(number): [] for number in range(stage.stream.partitions)}
    for file in listed_files(folder / "_spark_metadata"):
        table = pq.read_table(folder / file, columns=["partition", "sequence"]).to_pydict()
        for partition, sequence in zip(table["partition"], table["sequence"], strict=True):
            found[partition].append(sequence)
    assert found == {name: [message.sequence for message in held] for name, held in (await stage.stored()).items()}


def listed_files(log: Path) -> list[str]:
    """The names of the files that Spark's file sink has committed, in the order of its batches."""
    last = max((int(file.stem) for file in log.glob("*.compact")), default=-1)
    logs = [log / f"{last}.compact"] if last >= 0 else []  # It repeats all that were before.
    later = [int(file.name) for file in log.iterdir() if file.name.isdecimal() and int(file.name) > last]
    lines = [line for file in (*logs, *(log / str(number) for number in sorted(later))) for line in said(file)]
    return [json.loads(line)["path"].rpartition("/")[2] for line in lines]


def said(log: Path) -> list[str]:
    """The lines of one of Spark's logs, but for the first, which has its version."""
    return log.read_text().splitlines()[1:]


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
