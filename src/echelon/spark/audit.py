"""The audit: whether every message of a range has its result exactly once, and in order by key.

It is a job of Spark's over two frames: the messages, as `spark.read.format("echelon")` gives them, and the results, as
`echelon.spark.results` finds them in a sink. It only says something of pipelines that make one result of each message,
and keep its `partition` and `sequence`.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it

from echelon.model import Bounds

_MESSAGE: Final = ["partition", "sequence"]
_FIRST: Final = Window.unboundedPreceding


class Offender(Struct, frozen=True):
    """A message that is not there as it should be: `lost`, `unexpected`, `duplicated` or `out_of_order`."""

    problem: str
    partition: str
    sequence: int
    key: bytes | None
    results: int


class Audit(Struct, frozen=True):
    """What was found, in numbers of messages. A message may be both duplicated and out of order.

    `unexpected` are results of messages that are not among those that were looked for. `unjudged` are messages that
    are there, and of whose results nobody can tell any more when they became visible.
    """

    messages: int
    processed: int
    lost: int
    duplicated: int
    out_of_order: int
    unexpected: int
    unjudged: int
    offenders: tuple[Offender, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every message is there exactly once and none is known to be out of order."""
        return not (self.lost or self.duplicated or self.out_of_order or self.unexpected)


def audit(
    messages: DataFrame,
    results: DataFrame,
    *,
    bounds: Mapping[str, Bounds] | None = None,
    since: Mapping[str, int] | None = None,
    most: int = 10,
) -> Audit:
    """Compare the messages (`partition`, `sequence`, `key`) with the results (`partition`, `sequence`, `order`).

    `order` says when a result became visible: a later one has a greater number, and those that became visible together
    have the same. A message is out of order if the first result of a later message of its key was visible before its
    own first. Of results that became visible together nothing is said: no reader saw one without the others. A message
    without a key has no order to keep; one with a result whose `order` is null is `unjudged`.

    With `bounds`, results outside the bounds of their partition are not looked at; the messages should be read within
    the same. With `since`, a partition's results count only if their order is greater: they were made after a reset
    that kept the output. `most` is how many offenders of each kind are named, the lowest sequences first. Blocks.
    """
    partition, sequence, order = (F.col(name) for name in ("partition", "sequence", "order"))
    for name, last in (since or {}).items():
        results = results.where((partition != name) | order.isNull() | (order > last))
    if bounds is not None:
        within = F.lit(False)  # noqa: FBT003 - the value itself
        for name, each in bounds.items():
            within |= (partition == name) & (sequence >= each.first) & (sequence < each.end)
        results = results.where(within)
    compared = _compare(messages, results)
    expected, times = F.col("expected"), F.col("results")
    kinds = {
        "messages": expected,
        "processed": expected & (times > 0),
        "lost": expected & (times == 0),
        "duplicated": expected & (times > 1),
        "out_of_order": F.col("is_late"),
        "unexpected": ~expected,
        "unjudged": expected & (times > 0) & F.col("key").isNotNull() & order.isNull(),
    }
    [counts] = compared.agg(*(F.count_if(kind).alias(name) for name, kind in kinds.items())).collect()
    found = Audit(**counts.asDict(), offenders=())
    if found.is_exact:
        return found
    problem = F.when(kinds["lost"], "lost").when(kinds["unexpected"], "unexpected").when(times > 1, "duplicated")
    problem = problem.when(kinds["out_of_order"], "out_of_order")
    return replace(found, offenders=_first(compared.withColumn("problem", problem), most))


def _compare(messages: DataFrame, results: DataFrame) -> DataFrame:
    """One row for each message that there is or that has results."""
    # A message with a result of which nobody knows when it became visible may have been visible before.
    first = F.when(F.count("order") == F.count("*"), F.min("order"))
    there = results.groupBy(_MESSAGE).agg(F.count("*").alias("results"), first.alias("order"))
    wanted = messages.select(*_MESSAGE, "key", F.lit(True).alias("expected"))  # noqa: FBT003 - the value itself
    both = wanted.join(there, _MESSAGE, "full_outer").fillna({"results": 0, "expected": False})
    has_order = F.col("expected") & F.col("key").isNotNull() & F.col("order").isNotNull()
    before = Window.partitionBy("partition", "key").orderBy("order", "sequence").rowsBetween(_FIRST, -1)
    latest = F.max(F.when(has_order, F.col("sequence"))).over(before)
    return both.withColumn("is_late", F.coalesce(has_order & (latest > F.col("sequence")), F.lit(False)))  # noqa: FBT003 - as above


def _first(compared: DataFrame, most: int) -> tuple[Offender, ...]:
    rank = F.row_number().over(Window.partitionBy("problem").orderBy("sequence", "partition"))
    found = compared.where(F.col("problem").isNotNull()).withColumn("rank", rank).where(F.col("rank") <= most)
    rows = found.select("problem", *_MESSAGE, "key", "results").orderBy("problem", "rank").collect()
    return tuple(Offender(**row.asDict()) for row in rows)
