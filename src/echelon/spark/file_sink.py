"""Spark's own file sink: what it must not be used for.

It keeps a log of its batches beside the files, and leaves out every batch whose number is in there: it takes that for a
repetition. It does not ask whose batch it was, so a second query that writes to the same path loses messages.
"""

from typing import Final

from echelon.errors import InvalidConfig
from echelon.group.config import Config
from echelon.spark.files import Files
from echelon.spark.output import SparkOutput

_FORMATS: Final = ("avro", "csv", "json", "orc", "parquet", "text", "xml")


def check_seats(group: str, output: SparkOutput, config: Config) -> None:
    """Raise InvalidConfig if several seats, each with a query of its own, would write to one file sink."""
    seats = config.seats()
    if output.format.lower() in _FORMATS and len(seats) != 1:
        raise InvalidConfig(
            f"the group {group} {'has' if seats else 'may have'} more than one seat, and Spark's file sink takes the "
            "batches of one query only: it would leave out those of the others",
            remedy="Make the group with a single member (options={'members': ('m1',)}) and stand-bys, or use DeltaSink "
            "or EachBatch",
        )


def check_batches(files: Files, output: SparkOutput, checkpoint: str) -> None:
    """Raise InvalidConfig if a file sink has batches already that this checkpoint's query is yet to make. Blocks."""
    path = next((value.rstrip("/") for name, value in output.options.items() if name.lower() == "path"), "")
    if path and _newest(files, f"{path}/_spark_metadata") > _newest(files, f"{checkpoint}/offsets"):
        raise InvalidConfig(
            f"the files at {path} are further than this seat's checkpoint, as those of another query are, or those "
            "from before a reset of its state: Spark's file sink would take what comes next for repetitions, and leave "
            "it out",
            remedy="Declare another path, or delete these files",
        )


def _newest(files: Files, log: str) -> int:
    """The number of the newest batch in one of Spark's logs; -1 if there is none."""
    numbers = (name.removesuffix(".compact") for name in files.names(log))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
