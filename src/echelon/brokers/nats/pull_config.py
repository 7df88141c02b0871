"""A pull consumer's configuration, with the rules for its priority group: whom the server serves first.

With `overflow` a request is served only when enough waits; with `pinned_client` one client is served and the others
stand by; with `prioritized` requests of the lowest number come first. The server does not refuse all that these rules
forbid, so they are checked before anything is sent.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from echelon.errors import InvalidPriority

SECOND: Final = 1_000_000_000
POLICIES: Final = ("overflow", "pinned_client", "prioritized")
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9/_=-]{1,16}")


class ConsumerConfig(Struct, frozen=True, kw_only=True):
    """A consumer, in JetStream's own words, with durations in seconds. What is not given is for the server to choose.

    `deliver_subject` makes it a push consumer, which can have no priority group. `priority_timeout` is how long a
    pinned client may ask for nothing until another is pinned (the server's default is 120 s).
    """

    name: str
    durable: bool = False
    filter_subjects: tuple[str, ...] = ()
    deliver_policy: Literal["all", "last", "new", "by_start_sequence", "last_per_subject"] = "all"
    opt_start_seq: int = 0
    ack_policy: Literal["explicit", "all", "none"] = "explicit"
    ack_wait: float = 0.0
    max_ack_pending: int = 0
    max_deliver: int = 0
    max_waiting: int = 0
    inactive_threshold: float = 0.0
    num_replicas: int = 0
    mem_storage: bool = False
    deliver_subject: str = ""
    metadata: Mapping[str, str] = {}
    priority_policy: str = ""
    priority_groups: tuple[str, ...] = ()
    priority_timeout: float = 0.0

    def encode(self) -> dict[str, Any]:
        """The configuration as the server's JSON has it."""
        optional = {
            "durable_name": self.name if self.durable else "",
            "opt_start_seq": self.opt_start_seq,
            "ack_wait": round(self.ack_wait * SECOND),
            "max_deliver": self.max_deliver,
            "filter_subjects": self.filter_subjects,
            "max_waiting": self.max_waiting,
            "max_ack_pending": self.max_ack_pending,
            "inactive_threshold": round(self.inactive_threshold * SECOND),
            "mem_storage": self.mem_storage,
            "deliver_subject": self.deliver_subject,
            "metadata": self.metadata,
            "priority_policy": self.priority_policy,
            "priority_timeout": round(self.priority_timeout * SECOND),
            "priority_groups": self.priority_groups,
        }
        return {
            "name": self.name,
            "deliver_policy": self.deliver_policy,
            "ack_policy": self.ack_policy,
            "replay_policy": "instant",
            "num_replicas": self.num_replicas,
            **{name: value for name, value in optional.items() if value},
        }


def check_group(name: str) -> None:
    """Raise InvalidPriority unless `name` can name a priority group."""
    if not _GROUP_NAME.fullmatch(name):
        raise InvalidPriority(
            f"'{name}' cannot name a priority group", remedy="Use 1 to 16 letters, digits and - _ / ="
        )


def check_priority(config: ConsumerConfig) -> None:
    """Raise InvalidPriority, naming the mistake, unless the consumer may have this priority group, or none."""
    what = f"the consumer {config.name}"
    if not config.priority_policy:
        if config.priority_groups or config.priority_timeout:
            raise InvalidPriority(f"{what} has no priority policy", remedy=f"Choose one of {', '.join(POLICIES)}")
        return
    if config.priority_policy not in POLICIES:
        raise InvalidPriority(
            f"{what} has the priority policy '{config.priority_policy}', which is not known",
            remedy=f"Choose one of {', '.join(POLICIES)}",
        )
    if len(config.priority_groups) != 1:
        raise InvalidPriority(f"{what} has {len(config.priority_groups)} priority groups", remedy="Give exactly one")
    check_group(config.priority_groups[0])
    if config.ack_policy != "explicit":
        raise InvalidPriority(f"{what} has a priority group, but its acks are not explicit")
    if config.deliver_subject:
        raise InvalidPriority(f"{what} has a priority group, but it is a push consumer", remedy="Make it a pull one")
    if config.priority_timeout < 0 or (config.priority_timeout and config.priority_policy != "pinned_client"):
        raise InvalidPriority(
            f"{what} has a priority timeout of {config.priority_timeout:g} s with the policy {config.priority_policy}",
            remedy="Give one above 0 s, with the policy pinned_client only",
        )


def check_priority_change(old: Mapping[str, Any], new: ConsumerConfig) -> None:
    """Raise InvalidPriority unless a consumer configured as `old` (as the server has it) may become `new`.

    Of what concerns priority only the timeout may change.
    """
    check_priority(new)
    before = old.get("priority_policy") or ""
    before = "" if before == "none" else before
    if before != new.priority_policy:
        raise InvalidPriority(
            f"the priority policy of the consumer {new.name} is '{before or 'none'}'; it cannot become "
            f"'{new.priority_policy or 'none'}'",
            remedy="Make another consumer",
        )
    groups = tuple(old.get("priority_groups") or ())
    if groups != new.priority_groups:
        raise InvalidPriority(f"the priority group of the consumer {new.name} is {groups[0]}; it cannot change")
