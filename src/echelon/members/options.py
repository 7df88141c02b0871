"""How an instance works, as its user chooses."""

from collections.abc import Callable

from msgspec import Struct

from echelon.errors import InvalidConfig
from echelon.group.config import Config
from echelon.members.handlers import Call
from echelon.members.sinks.base import Sink


class Options(Struct, frozen=True):
    """How an instance works.

    `lanes` of a partition run side by side; at most `buffer` messages of a partition are in memory beside what the
    broker's client holds. With `batch` the handler takes a list of up to `batch_size` messages of one partition.
    `sink` is for exactly once: the handler's second argument is then what the transaction writes to.
    `save` is called with a partition's name when it has drained for a cut, and returns at most 64 KiB to keep with it;
    `PartitionStarted` has them again after a reset to that cut.
    `neighbours`: tell others where this process runs, so that those on the same machine see at once when it is gone,
    and look out for them.
    """

    lanes: int = 16
    buffer: int = 5000
    batch: bool = False
    batch_size: int = 1000
    sink: Sink | None = None
    save: Callable[[str], bytes | None] | None = None
    neighbours: bool = True


def check_options(options: Options, config: Config, call: Call, group: str) -> None:
    """Raise InvalidConfig unless an instance may work like this in a group configured like that."""
    if not 1 <= options.lanes <= 1024:
        raise InvalidConfig(f"lanes is {options.lanes}; it must be 1 to 1024")
    if options.buffer < 1 or options.batch_size < 1:
        raise InvalidConfig("buffer and batch_size must be at least 1")
    if options.batch and config.on_failure == "park":
        raise InvalidConfig(f"the group {group} parks keys", remedy="Take messages one by one, without batch")
    exactly_once = config.delivery == "exactly_once"
    if exactly_once and options.sink is None:
        raise InvalidConfig(f"the group {group} delivers exactly once", remedy="Give a sink that commits positions too")
    if options.sink is not None and not exactly_once:
        raise InvalidConfig(f"the group {group} does not deliver exactly once, so it has no use for a sink")
    if options.sink is not None and (options.batch or not call.epoch):
        raise InvalidConfig("a handler with a sink takes a message and what the transaction writes to")
