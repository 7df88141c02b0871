"""Exactly once from Spark back into JetStream."""

from echelon.errors import InvalidConfig
from echelon.members.sinks.nats import NatsSink, Outbox
from echelon.spark.sinks.streams import Result, StreamSink


class NatsBatchSink(StreamSink):
    """A sink in the one `stream`, with the options of `NatsBroker`, for rows as `StreamSink` has them, without `key`.

    They go to the subject `target`, or to the one in the column `subject`; the stream has to take it. What the stream
    needs besides, and the guarantees with and without `atomic`, are those of `NatsSink`: with `atomic` a part may have
    1,000 results, so limit what a trigger reads.
    """

    def __init__(
        self, url: str, stream: str, target: str | None = None, *, atomic: bool = True, **options: object
    ) -> None:
        super().__init__(NatsSink(url, stream, atomic=atomic, **options), target, _send)


def _send(outbox: Outbox, result: Result) -> None:
    if result.key is not None:
        raise InvalidConfig(
            "messages on NATS have no key", remedy="Leave the column key out; put it into the subject or a header"
        )
    outbox.send(result.target, result.data, result.headers)
