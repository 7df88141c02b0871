"""Where a pipeline's results go when no sink of ours takes them: any other sink that Spark has."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from pyspark.sql import DataFrame


class SparkOutput(Struct, frozen=True):
    """A sink that Spark has: `df.writeStream.format(...).options(...)`.

    Its guarantee is its own, by the seat's checkpoint: a batch that was under way when the seat changed hands is
    written again under the same batch id, and no epoch fences what the former holder still writes.
    """

    format: str
    options: Mapping[str, str] = {}


class EachBatch(Struct, frozen=True):
    """A function of each batch and its id: `df.writeStream.foreachBatch(...)`. It may see a batch more than once."""

    function: Callable[[DataFrame, int], None]
