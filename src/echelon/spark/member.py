"""A Spark application as a member: its seat's partitions are processed by a streaming query."""

from collections.abc import Callable
from typing import Any

from msgspec import structs
from pyspark.sql import SparkSession

from echelon.brokers.base import Broker
from echelon.group.records import Profile
from echelon.members.events import Event
from echelon.members.machine import this_machine
from echelon.members.sitting import Sitting
from echelon.spark.pipeline import Pipeline
from echelon.spark.query import Batch
from echelon.spark.querybench import QueryBench


class SparkMember(Sitting):
    """An instance of a pipeline's group in this application. `run` it; `drain` or `stop` it in the same event loop.

    The session is there before the seat is, so a stand-by starts its query at once; it knows the format `echelon`
    (`build_session` sees to that, or `register`). `on_batch` is called, in the event
    loop, after each batch; `on_drain` once, when it begins to leave; `on_event` as `Member` has it.
    """

    def __init__(
        self,
        broker: Broker,
        pipeline: Pipeline,
        spark: SparkSession,
        profile: Profile,
        *,
        on_event: Callable[[Event], None] = lambda _: None,
        on_batch: Callable[[Batch], None] = lambda _: None,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to its process
        machine = this_machine(jvm.java.lang.ProcessHandle.current().pid())
        super().__init__(
            broker,
            pipeline.group,
            structs.replace(profile, machine=machine, checkpoint=True),
            lambda own, wake: QueryBench(broker, pipeline, spark, own, wake, on_batch),
            on_event=on_event,
        )
        self._on_drain = on_drain

    def drain(self) -> None:
        """Finish what is in flight, hand everything over, and leave."""
        if not self._own.leaving:
            self._on_drain()
        super().drain()
