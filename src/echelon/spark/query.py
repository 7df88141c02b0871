"""A streaming query, from start to end. Everything here blocks, and is called in threads beside the event loop."""

import logging
import re
import threading
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from echelon.errors import EchelonError, Unreachable
from echelon.spark.output import EachBatch, SparkOutput

logger = logging.getLogger(__name__)

# What Spark's plan calls the operators that keep state from batch to batch.
_STATEFUL: Final = ("Aggregate", "Deduplicate", "Distinct", "GlobalLimit", "WithState")


# As Python and Java begin to tell of an error: `ValueError: …`, `Caused by: java.io.IOException: …`.
_TELLING: Final = re.compile(r"(Caused by: )?[\w.$]*(Error|Exception|Failed|Range|Found|Denied)\b.*: ")


class PipelineFailed(EchelonError):
    """A batch of the pipeline failed, again and again: the function, the sink, or a task."""


class JvmGone(EchelonError):
    """Spark's JVM has ended."""


class Batch(Struct, frozen=True):
    """What Spark says of the last batch. Times are milliseconds."""

    id: int
    rows: int
    duration: int


class Query:
    """The streaming query of a seat: `build` makes the result from the source's frame, `output` takes it."""

    def __init__(
        self,
        spark: SparkSession,
        source: dict[str, str],
        build: Callable[[DataFrame], DataFrame],
        output: SparkOutput | EachBatch,
        checkpoint: str,
        *,
        mode: str,
        name: str,
    ) -> None:
        self._spark = spark
        self._source = source
        self._build = build
        self._output = output
        self._checkpoint = checkpoint
        self._mode = mode
        self._name = name
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(self) -> Exception | None:
        """Start the query and wait until it ends; why it failed, if it did and was not stopped."""
        logger.info("the query %s begins", self._name)
        try:
            with self._lock:
                if self._stopped:
                    return None
                self._query = self._start()
            self._query.awaitTermination()
        except (PySparkException, Py4JError, OSError, EchelonError) as error:
            return None if self._stopped else self._explain(error)
        finally:
            logger.info("the query %s has ended", self._name)
        return None if self._stopped else PipelineFailed("the query ended by itself")

    def _start(self) -> StreamingQuery:
        frame = self._build(self._spark.readStream.format("echelon").options(**self._source).load())
        writer = (
            frame.writeStream.option("checkpointLocation", self._checkpoint)
            .queryName(self._name)
            .outputMode(self._mode)
        )
        match self._output:
            case EachBatch(function=function):
                return writer.foreachBatch(function).start()
            case SparkOutput(format=form, options=options):
                return writer.format(form).options(**options).start()

    def stop(self) -> None:
        """Stop it, with what it has under way. Returns when nothing of it runs any more."""
        self._stopped = True
        with self._lock:
            query = self._query
        if query is not None:
            try:
                query.stop()
            except (PySparkException, Py4JError, OSError) as error:
                logger.warning("the query did not stop in good order: %s", first_line(error))

    def last_batch(self) -> Batch | None:
        """What Spark says of the last batch, if there was one."""
        query = self._query
        try:
            progress: Any = query.lastProgress if query is not None else None
        except (PySparkException, Py4JError, OSError):
            return None
        if progress is None:
            return None
        return Batch(progress["batchId"], progress["numInputRows"], progress["durationMs"].get("triggerExecution", 0))

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, EchelonError):
            return error
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return JvmGone("Spark's JVM has ended", remedy="See what it wrote to standard error")
        if "echelon.errors.Unreachable" in str(error):
            return Unreachable(first_line(error))
        return PipelineFailed(f"the pipeline failed: {first_line(error)}")


def keeps_state(frame: DataFrame) -> bool:
    """Whether a streaming frame keeps state from batch to batch. Blocks."""
    return _keeps_state(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - PySpark has no other way


def _keeps_state(node: Any) -> bool:  # noqa: ANN401 - an object of the JVM's
    if not node.isStreaming():
        return False
    name, children = node.nodeName(), node.children()
    parts = [children.apply(number) for number in range(children.size())]
    joins = name == "Join" and all(part.isStreaming() for part in parts)
    return joins or any(word in name for word in _STATEFUL) or any(map(_keeps_state, parts))


def first_line(error: Exception) -> str:
    """The line of an error's text that says what happened: Spark's own texts are pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.match(line)]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0][:500]
