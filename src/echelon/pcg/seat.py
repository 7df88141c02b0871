"""A member's consumer: made as all instances of the member make it, or taken as it is if it has the same partitions."""

from typing import Any, Final

from msgspec import Struct

from echelon.brokers.nats.pull_config import SECOND, ConsumerConfig
from echelon.brokers.nats.pull_consumers import ConsumerInfo
from echelon.errors import BrokerError, ConsumerExists, InvalidConfig
from echelon.pcg.config import Kind
from echelon.pcg.found import Found
from echelon.pcg.groups import Groups
from echelon.pcg.options import Options

_ACK_WAIT: Final = 5.0
_LEAST_PIN: Final = 1.0
_OLD_ACK_WAIT: Final = 6.0  # Go v0.1: the least, and the idle time of consumers


class OldFilters(BrokerError):
    """The member's consumer has the partitions of an earlier configuration; `pinned` says who is active on it."""

    def __init__(self, what: str, pinned: str, ack_wait: float) -> None:
        super().__init__(what, remedy="Delete it if no instance of an earlier group of that name runs any more")
        self.pinned = pinned
        self.ack_wait = ack_wait


class Seat(Struct, frozen=True):
    """A consumer that an instance can pull from, with the settings that it has. Durations are seconds."""

    stream: str
    consumer: str
    priority_group: str
    ack_wait: float
    pin_seconds: float
    max_ack_pending: int
    acknowledged: int
    """Everything up to this sequence is acknowledged."""
    made: str
    """When the consumer was made, as JSON has it."""
    kind: Kind


def consumer_config(found: Found, member: str, options: Options) -> ConsumerConfig:
    """The consumer of a member, as its instances in any language make it, in the group's format."""
    old = found.config.format == "v0.1"
    wait = max(options.ack_wait or 0, _OLD_ACK_WAIT) if old else options.ack_wait or _ACK_WAIT
    idle = _OLD_ACK_WAIT if old else wait
    return ConsumerConfig(
        name=found.consumer(member),
        durable=found.kind == "static",
        filter_subjects=found.config.partition_filters(member),
        ack_wait=wait,
        max_ack_pending=options.max_ack_pending,
        inactive_threshold=idle if found.kind == "elastic" else 0.0,
        priority_policy="pinned_client",
        priority_groups=(found.config.priority_group(member),),
        priority_timeout=wait if old else max(wait, _LEAST_PIN),
    )


async def sit_down(groups: Groups, found: Found, member: str, options: Options) -> Seat:
    """Make a member's consumer, or find the one that is there.

    Other libraries may have made it with other timings or wider filters; it is kept as it is, so that instances in
    different languages do not delete each other's. Raises FilterTaken while another member's consumer has one of the
    partitions, OldFilters, StreamNotFound, Unreachable, InvalidConfig.
    """
    config = consumer_config(found, member, options)
    try:
        info = await groups.consumers.create(found.consumed, config)
    except ConsumerExists:
        info = await groups.consumers.info(found.consumed, config.name)
    _check_same(info, config)
    return Seat(
        found.consumed,
        config.name,
        info.config["priority_groups"][0],
        info.config["ack_wait"] / SECOND,
        info.config["priority_timeout"] / SECOND,
        info.config["max_ack_pending"],
        info.ack_floor.stream_seq,
        info.created,
        found.kind,
    )


def _check_same(info: ConsumerInfo, config: ConsumerConfig) -> None:
    there = info.config
    if there.get("priority_policy") != "pinned_client" or len(there.get("priority_groups") or ()) != 1:
        raise InvalidConfig(
            f"the consumer {info.name} is not a member's: it does not pin a client", remedy="Delete or rename it"
        )
    if _partitions(there) != {each.partition(".")[0] for each in config.filter_subjects}:
        raise OldFilters(f"the consumer {info.name} has other partitions", info.pinned, there["ack_wait"] / SECOND)
    if there["max_ack_pending"] != config.max_ack_pending:
        raise InvalidConfig(
            f"the consumer {info.name} has max_ack_pending {there['max_ack_pending']}, not {config.max_ack_pending}",
            remedy="Give all instances of a member the same",
        )


def _partitions(config: dict[str, Any]) -> set[str]:
    filters = config.get("filter_subjects") or [config.get("filter_subject") or ""]
    return {each.partition(".")[0] for each in filters}
