"""A pipeline: a function from DataFrame to DataFrame, and what is declared about it."""

from collections.abc import Callable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from echelon.errors import InvalidConfig
from echelon.group.config import Config, Delivery, Partitioning, Stream
from echelon.keys import RecordKey, parse_key
from echelon.members.admin import Start
from echelon.spark.file_sink import check_seats
from echelon.spark.order import in_order
from echelon.spark.output import EachBatch, SparkOutput
from echelon.spark.process import Access
from echelon.spark.query import PipelineFailed, keeps_state
from echelon.spark.sinks.base import BatchSink

_GROUP_OPTIONS: Final = frozenset(Config.__struct_fields__) - {"streams", "positions", "ends", "delivery"}

Sink = BatchSink | SparkOutput | EachBatch


class Pipeline(Struct, frozen=True, kw_only=True):
    """What `pipeline` declares. `stream` may name several, with commas between.

    Without a `broker`, `echelon run` takes the one that its other commands talk to. `partitions` and `key` say how a
    NATS stream falls into partitions (`subject`, `header:NAME`, `tokens:FILTER:1,2`); a Kafka topic has its own. Of a
    group that is there already, its own configuration counts. `mode` is Spark's output mode, which aggregations need to
    be `update`. `trigger` is the least number of seconds from the beginning of a batch to that of the next,
    `max_messages` the most that a batch holds. `checkpoint` is where the checkpoints of the group's seats are; `shared`
    says that a local path there is a folder that all machines have in common. `options` are further settings of the
    group, `spark` those of the session.
    """

    function: Callable[[DataFrame], DataFrame]
    group: str
    stream: str
    sink: Sink
    broker: str = ""
    broker_options: Mapping[str, str] = {}
    partitions: int = 12
    key: str = "subject"
    partitioning: Partitioning = "derived"
    delivery: Delivery = "exactly_once"
    start: Start = "earliest"
    mode: Literal["append", "update", "complete"] = "append"
    trigger: float = 0.0
    max_messages: int | None = 100_000
    checkpoint: str = "checkpoints"
    shared: bool = False
    options: Mapping[str, object] = {}
    spark: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def access(self) -> Access:
        """How the tasks reach the broker."""
        return Access(self.broker, tuple(sorted(self.broker_options.items())))

    @property
    def exact(self) -> bool:
        """Whether a sink says where each partition stands."""
        return self.batch_sink is not None

    @property
    def batch_sink(self) -> BatchSink | None:
        """The sink that takes results and positions together, if it is one."""
        return None if isinstance(self.sink, SparkOutput | EachBatch) else self.sink

    @property
    def output(self) -> SparkOutput | EachBatch:
        """The sink that only takes results."""
        assert isinstance(self.sink, SparkOutput | EachBatch)
        return self.sink

    def streams(self) -> tuple[Stream, ...]:
        """The streams as the group is made with them."""
        names = [name.strip() for name in self.stream.split(",")]
        if self.broker.startswith("kafka://"):
            return tuple(Stream(name, 1, RecordKey(), "native") for name in names)
        return tuple(Stream(name, self.partitions, parse_key(self.key), self.partitioning) for name in names)

    def build(self, frame: DataFrame, config: Config) -> DataFrame:
        """The results of the source's frame. Raises PipelineFailed if the function does."""
        computed = any(stream.partitioning == "computed" for stream in config.streams)
        try:
            return self.function(in_order(frame) if computed else frame)
        except Exception as error:
            raise PipelineFailed(f"the function {self.name} failed: {type(error).__name__}: {error}") from error

    def __repr__(self) -> str:
        return f"Pipeline({self.name}, group={self.group})"


def pipeline(
    *,
    group: str,
    stream: str,
    sink: Sink,
    **declarations: object,
) -> Callable[[Callable[[DataFrame], DataFrame]], Pipeline]:
    """Make a function from DataFrame to DataFrame a pipeline; the further declarations are the fields of `Pipeline`.

    Raises InvalidConfig for a declaration that there is not, or that contradicts another.
    """
    unknown = sorted(set(declarations) - set(Pipeline.__struct_fields__))
    if unknown:
        raise InvalidConfig(
            f"a pipeline has no declaration '{unknown[0]}'",
            remedy=f"Declare {', '.join(name for name in Pipeline.__struct_fields__ if name != 'function')}",
        )

    def declare(function: Callable[[DataFrame], DataFrame]) -> Pipeline:
        made = Pipeline(function=function, group=group, stream=stream, sink=sink, **declarations)  # type: ignore[arg-type]  # checked right below
        _check_declared(made)
        return made

    return declare


def _check_declared(made: Pipeline) -> None:
    if made.delivery == "exactly_once" and not made.exact:
        raise InvalidConfig(
            f"the pipeline {made.name} delivers exactly once, and its sink does not keep positions",
            remedy="Use DeltaSink, PostgresBatchSink, KafkaBatchSink or NatsBatchSink, or deliver at_least_once",
        )
    if made.delivery != "exactly_once" and made.exact:
        raise InvalidConfig(
            f"the sink of the pipeline {made.name} keeps positions, which is for exactly once",
            remedy="Deliver exactly_once, or use SparkOutput or EachBatch",
        )
    if made.trigger < 0 or (made.max_messages is not None and made.max_messages < 1):
        raise InvalidConfig("trigger must not be negative, and max_messages must be at least 1")
    unknown = sorted(set(made.options) - _GROUP_OPTIONS)
    if unknown:
        raise InvalidConfig(f"a group has no option '{unknown[0]}'", remedy=f"Use {', '.join(sorted(_GROUP_OPTIONS))}")


def check_streams(made: Pipeline, config: Config) -> None:
    """Raise InvalidConfig unless the group is over the pipeline's streams, and delivers as it wants."""
    wanted, found = {stream.name for stream in made.streams()}, {stream.name for stream in config.streams}
    if wanted != found:
        raise InvalidConfig(
            f"the group {made.group} is over {', '.join(sorted(found))}, and the pipeline {made.name} over "
            f"{', '.join(sorted(wanted))}",
            remedy="Give the pipeline a group of its own",
        )
    if config.delivery != made.delivery:
        raise InvalidConfig(
            f"the group {made.group} delivers {config.delivery}, and the pipeline {made.name} wants {made.delivery}",
            remedy="Declare the same delivery, or give the pipeline a group of its own",
        )


def check_pipeline(made: Pipeline, config: Config, spark: SparkSession) -> bool:
    """Raise InvalidConfig unless the pipeline may run in this group and on this cluster; whether it keeps state.

    Blocks: it lets Spark make a plan of the function.
    """
    if config.on_failure != "stop":
        raise InvalidConfig(
            f"the group {made.group} sets failed messages aside, which a Spark member cannot: its batch fails as one",
            remedy="Make the group with on_failure=stop, and see to bad messages in the pipeline's function",
        )
    check_checkpoint(made, spark.sparkContext.master or "local")
    if isinstance(made.sink, SparkOutput):
        check_seats(made.group, made.sink, config)
    stateful = keeps_state(made.build(spark.readStream.format("echelon").options(seat="rehearsal").load(), config))
    if stateful:
        _check_state(made, config)
    return stateful


def check_checkpoint(made: Pipeline, master: str) -> None:
    """Raise InvalidConfig if candidates on other machines could not read the checkpoint."""
    is_local = urlsplit(made.checkpoint).scheme in ("", "file") and not made.shared
    if is_local and not master.startswith("local"):
        raise InvalidConfig(
            f"the checkpoint {made.checkpoint} is a local path, and {master} is a cluster: whoever takes the seat on "
            "another machine could not go on from it",
            remedy="Give a path that every candidate can read, as hdfs://… or s3a://…; or declare shared=True if that "
            "folder is on all machines, as with NFS",
        )


def _check_state(made: Pipeline, config: Config) -> None:
    """State is kept in the seat's checkpoint and does not move with a partition: so partitions must not move."""
    seats: Literal["mapped", "one", "several"] = "several"
    if config.membership == "mapped":
        seats = "mapped"
    elif config.membership == "listed" and len(config.seats()) == 1:
        seats = "one"
    if seats == "several":
        raise InvalidConfig(
            f"the pipeline {made.name} keeps state, which stays with its seat when a partition moves to another",
            remedy="Make the group with assignment=mapped and a mapping, or with a single member "
            "(options={'members': ('m1',)}) and stand-bys",
        )
