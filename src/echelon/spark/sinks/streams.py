"""Exactly once back into a stream: what the members' own sinks for Kafka and NATS do, for the batches of a seat."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType

from echelon.errors import InvalidConfig
from echelon.members.sinks.base import Place, Sink
from echelon.spark.sinks.base import Part

ORIGIN: Final = "Echelon-Origin"
"""The header that tells which message a result was made from: `<partition>:<sequence>`."""

_NEEDED: Final = ("partition", "data")
_TAKEN: Final = (*_NEEDED, "subject", "key", "headers", "sequence")


class Result(Struct, frozen=True):
    """One message on its way."""

    target: str
    data: bytes
    key: bytes | None
    headers: dict[str, str]


class StreamSink:
    """A sink that sends each row of a batch as a message, through a members' sink.

    Rows have the columns `partition` (of the message that the row was made from) and `data` (binary or string), and may
    have `key` (the same), `headers` (a map of strings, or those of a message) and `sequence`; with this the message has
    the header `Echelon-Origin`, which an audit needs. They go to `target`, a subject or topic; without one, each to
    what its column `subject` says.

    Each part is a transaction of its own, in the order given. Rows of a partition are sent in the order in which the
    frame has them; those of partitions that the batch has no part of are not sent. The whole batch passes through the
    driver's memory. Results that were committed cannot be taken back: a reset to an earlier position has to keep the
    output.
    """

    def __init__(self, sink: Sink, target: str | None, send: Callable[[Any, Result], None]) -> None:
        self._sink = sink
        self._target = target
        self._put = send

    async def __aenter__(self) -> Self:
        """Connect, as the members' sink does."""
        await self._sink.__aenter__()
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._sink.__aexit__(*exception)

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `BatchSink.open` describes it."""
        return await self._sink.open(place, epoch=epoch, reset=reset, position=position, keep=keep)

    def write(self, frame: DataFrame, parts: Sequence[Part]) -> bool:
        """Send the results and the position of each part in a transaction, one part after the other.

        Raises InvalidConfig if the frame has not the columns above, and what Spark raises for the results.
        """
        results = self._results(frame)
        return asyncio.run_coroutine_threadsafe(self._send(results, parts), self._loop).result()

    async def _send(self, results: Mapping[str, Sequence[Result]], parts: Sequence[Part]) -> bool:
        is_done = True
        for part in parts:
            async with self._sink.transaction(part.place, epoch=part.epoch, begin=part.begin) as transaction:
                for result in results.get(part.place.partition, ()):
                    self._put(transaction.target, result)
                is_done &= await transaction.commit(part.end)
        return is_done

    def _results(self, frame: DataFrame) -> dict[str, list[Result]]:
        self._check(frame)
        names = [name for name in _TAKEN if name in frame.columns]
        results: dict[str, list[Result]] = {}
        for row in frame.select(names).toArrow().to_pylist():
            partition = row["partition"]
            if partition is None:
                raise InvalidConfig(
                    "a result has no partition, so that nobody can tell which position it goes with",
                    remedy="Keep the column partition of the message that it is made from",
                )
            headers = {name: _words(value) for name, value in _pairs(row.get("headers"))}
            if row.get("sequence") is not None:
                headers[ORIGIN] = f"{partition}:{row['sequence']}"
            target = self._target or row["subject"]
            key = None if row.get("key") is None else _bytes(row["key"])
            results.setdefault(partition, []).append(Result(target, _bytes(row["data"]), key, headers))
        return results

    def _check(self, frame: DataFrame) -> None:
        needed = _NEEDED if self._target else (*_NEEDED, "subject")
        if missing := [name for name in needed if name not in frame.columns]:
            raise InvalidConfig(
                f"the results have no column {' and no column '.join(missing)}",
                remedy="Give each row what its message is to be made of, or give the sink a target",
            )
        for name in ("data", "key"):
            if name in frame.columns and not isinstance(frame.schema[name].dataType, BinaryType | StringType):
                raise InvalidConfig(f"the column {name} is neither binary nor a string", remedy="Cast it")


def _pairs(headers: object) -> list[tuple[str, object]]:
    """The headers of a row; Arrow gives a map as pairs, and those of a message as structs."""
    if headers is None:
        return []
    assert isinstance(headers, list)
    return [(each["name"], each["value"]) if isinstance(each, dict) else each for each in headers]


def _words(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
