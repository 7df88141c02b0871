"""What a schedule is about, drawn from its seed: the group, its instances, and which faults may happen."""

from random import Random
from typing import Final, Literal, get_args

from msgspec import Struct

from echelon.group.config import Config, Delivery, Stream

INTERVAL: Final = 1000
"""Milliseconds; all times of a schedule are multiples of what matters to it."""
TURMOIL: Final = 18 * INTERVAL
"""How long faults happen."""
RECOVERY: Final = 12
"""Intervals after the last fault within which every partition has an owner that processes."""
BASE_TIME: Final = 1_700_000_000_000

DELIVERIES: Final[tuple[Delivery, ...]] = ("at_least_once", "at_most_once", "exactly_once")
FAULTS: Final = (
    "crash",
    "crash_seen",
    "suspend",
    "cut_off",
    "deaf",
    "mute",
    "delayed_append",
    "failed_append",
    "duplicated_append",
    "slow_reader",
    "fading",
    "storm",
    "clock_jump",
    "fast_clock",
    "outage",
    "trim",
    "lost_tail",
    "newer_record",
    "lost_answer",
)
RequestFault = Literal["delayed_append", "failed_append", "duplicated_append", "lost_answer"]
REQUEST_FAULTS: Final = get_args(RequestFault)
"""Those of the faults that strike single requests, as these are made; the others strike at moments of their own."""
ADMINISTRATION: Final = (
    "members",
    "mapping",
    "step_down",
    "pause",
    "cut",
    "reset",
    "growth",
    "newcomer",
    "retire",
    "drain",
)


class Plan(Struct, frozen=True):
    """One schedule's choices."""

    config: Config
    instances: int = 0
    faults: tuple[str, ...] = ()
    administration: tuple[str, ...] = ()
    overflow: bool = False
    priorities: bool = False
    parking: bool = False
    spark: bool = False

    @property
    def calm(self) -> bool:
        """Only the broker misbehaves: no seat may change hands for that."""
        return (
            set(self.faults) <= {"outage", "clock_jump", "newer_record"}
            and not self.administration
            and not self.priorities
        )


def draw(rng: Random) -> Plan:
    """Draw a plan; a few kinds of trouble each, so that a schedule is about something."""
    partitions = rng.randint(2, 5)
    membership = rng.choice(("listed", "listed", "auto", "mapped"))
    members = tuple(f"m{number}" for number in range(rng.randint(1, 3)))
    names = [str(number) for number in range(partitions)]
    delivery = rng.choice(DELIVERIES)
    config = Config(
        streams=(Stream("data", partitions),),
        positions=dict.fromkeys(names, 10),
        members=members if membership == "listed" else None,
        mapping=deal(names, members) if membership == "mapped" else None,
        assignment="mapped" if membership == "mapped" else rng.choice(("sticky", "sticky", "sticky", "blocks")),
        delivery=delivery,
        interval=INTERVAL / 1000,
        drain_time=1.0,
        cut_time=4.0,
        cut_every=6.0 if rng.random() < 0.15 else None,
        cuts_kept=2,
        history=60.0,
        snapshot_every=100,
        on_failure="park" if delivery == "at_least_once" and rng.random() < 0.4 else "stop",
    )
    return Plan(
        config=config,
        instances=len(members) + rng.randint(0, 2) if membership != "auto" else rng.randint(1, 4),
        faults=tuple(rng.sample(FAULTS, rng.randint(0, 5))),
        administration=tuple(rng.sample(ADMINISTRATION, rng.randint(0, 4))) if rng.random() < 0.8 else (),
        overflow=rng.random() < 0.15,
        priorities=rng.random() < 0.25,
        parking=config.on_failure == "park",
        spark=rng.random() < 0.15,
    )


def deal(partitions: list[str], members: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """A mapping that deals partitions out in turn; as many members as there is something for."""
    hands = {member: tuple(partitions[index :: len(members)]) for index, member in enumerate(members)}
    return {member: hand for member, hand in hands.items() if hand}
