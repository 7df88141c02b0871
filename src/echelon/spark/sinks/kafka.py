"""Exactly once from Spark back into Kafka."""

from echelon.members.sinks.kafka import KafkaSink, Outbox
from echelon.spark.sinks.streams import Result, StreamSink


class KafkaBatchSink(StreamSink):
    """A sink on the Kafka at `url`, with the options of `KafkaBroker`, for rows as `StreamSink` describes them.

    They go to the topic `target`, or to the one in the column `subject`. The guarantees are those of `KafkaSink`:
    whoever reads with `read_committed` sees a part's results and its position together.
    """

    def __init__(self, url: str, target: str | None = None, **options: object) -> None:
        super().__init__(KafkaSink(url, **options), target, _send)


def _send(outbox: Outbox, result: Result) -> None:
    outbox.send(result.target, result.data, result.key, result.headers)
