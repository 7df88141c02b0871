"""A process as a member: its handler is called for every message of the partitions that its seat has."""

from collections.abc import Callable

from msgspec import structs

from echelon.brokers.base import Broker
from echelon.group.records import Profile
from echelon.members.desk import Desk
from echelon.members.events import Event
from echelon.members.handlers import Handler, understand
from echelon.members.machine import this_machine
from echelon.members.options import Options
from echelon.members.sitting import Sitting


class Member(Sitting):
    """An instance of a group in this process. `run` it; `drain` or `stop` it from anywhere in the same event loop.

    The handler is called for every message of the partitions that the seat has, in order by key. `on_event` is
    called, in the event loop, when partitions come and go and for every advisory of the group; it must not block.
    """

    def __init__(
        self,
        broker: Broker,
        group: str,
        handler: Handler,
        profile: Profile,
        *,
        options: Options | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        options = options or Options()
        call = understand(handler)
        super().__init__(
            broker,
            group,
            structs.replace(profile, machine=this_machine() if options.neighbours else None),
            lambda own, wake: Desk(broker, group, call, options, own, wake),
            on_event=on_event,
        )
