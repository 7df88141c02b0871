"""How an instance of a JetStream-native group works, as its user chooses."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from echelon.errors import InvalidConfig
from echelon.group.config import Config
from echelon.members.handlers import Call
from echelon.pcg.ledger import Ledger


class Options(Struct, frozen=True, kw_only=True):
    """How an instance works. All instances of one member should have the same `ack_wait` and `max_ack_pending`.

    `ack_wait` is how long an instance may be silent before another takes over (5 s unless given; at least 6 s, which
    is also the default, in groups in the format of Go v0.1). `max_ack_pending` is how many messages of the member may
    be under way: with 1, order is strict, by partition, whatever happens. With more, `lanes` run side by side, in
    order by key; what was under way when an instance is lost may then come out of order.
    `retries`, `backoff` and `on_failure` say what becomes of a message whose handler failed, as in other groups.
    `ledger` is for exactly once: the handler's second argument is then what the transaction writes to.
    `on_activated` and `on_deactivated` are called, in the event loop, when this instance becomes active and when it is
    so no more; they must not block.
    `spin`: seconds of looking for the next message before going to sleep, while there is one; costs processor time.
    """

    ack_wait: float | None = None
    max_ack_pending: int = 1
    lanes: int = 16
    retries: int = 5
    backoff: tuple[float, float] = (0.1, 30.0)
    on_failure: Literal["stop", "dead_letter"] = "stop"
    ledger: Ledger | None = None
    on_activated: Callable[[], None] = lambda: None
    on_deactivated: Callable[[], None] = lambda: None
    spin: float = 0.0005

    def failures(self) -> Config:
        """What becomes of messages that failed, in the words of other groups."""
        return Config(streams=(), positions={}, retries=self.retries, backoff=self.backoff, on_failure=self.on_failure)


def check_options(options: Options, call: Call) -> None:
    """Raise InvalidConfig unless an instance may work like this."""
    if options.ack_wait is not None and not 0.1 <= options.ack_wait <= 86_400:
        raise InvalidConfig(f"ack_wait is {options.ack_wait:g} s; it must be 0.1 to 86400 s")
    if not 1 <= options.max_ack_pending <= 100_000:
        raise InvalidConfig(f"max_ack_pending is {options.max_ack_pending}; it must be 1 to 100000")
    if not 1 <= options.lanes <= 1024:
        raise InvalidConfig(f"lanes is {options.lanes}; it must be 1 to 1024")
    if options.retries < 0:
        raise InvalidConfig(f"retries is {options.retries}; it must be at least 0")
    if options.ledger is not None and options.max_ack_pending != 1:
        raise InvalidConfig("exactly once needs strict order", remedy="Let max_ack_pending be 1")
    if call.epoch != (options.ledger is not None):
        raise InvalidConfig(
            "the handler of a JetStream-native group takes a message, and with a ledger what the transaction writes to",
            remedy="These groups have no epochs; to have your results fenced, give a ledger",
        )
