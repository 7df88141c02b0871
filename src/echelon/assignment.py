"""Assignment: which member each partition belongs to.

Pure functions of names. Whatever the order of what they are given, the result is the same, so that all
who read the same log agree. Partitions are in the order of `echelon.model.partition_order`.
"""

from collections.abc import Iterable, Mapping

from echelon.errors import InvalidConfig
from echelon.model import partition_order


def blocks(members: Iterable[str], partitions: Iterable[str]) -> dict[str, str]:
    """Partition → member, in contiguous blocks of equal size; what remains goes to the first members, one each.

    This is the assignment of JetStream's partitioned consumer groups. There are at most as many members as
    partitions: those past that in sort order get none. Without members the result is empty.
    """
    ordered = _ordered(partitions)
    seats = sorted(set(members))[: len(ordered)]
    if not seats:
        return {}
    size = len(ordered) // len(seats)
    blocked = size * len(seats)
    return {name: seats[i // size if i < blocked else i - blocked] for i, name in enumerate(ordered)}


def mapped(mapping: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Partition → member, from a valid mapping of members to their partitions."""
    return {name: member for member, names in mapping.items() for name in names}


def check_mapping(mapping: Mapping[str, tuple[str, ...]], partitions: Iterable[str]) -> None:
    """Raise InvalidConfig, naming the mistake, unless `mapping` gives each partition to exactly one member."""
    if not mapping:
        raise InvalidConfig("the mapping names no member", remedy="Give each partition to a member")
    known = set(partitions)
    owners: dict[str, str] = {}
    for member, names in mapping.items():
        if not member:
            raise InvalidConfig("the mapping has a member with an empty name")
        if not names:
            raise InvalidConfig(
                f"the mapping gives no partition to member {member}", remedy="Give it one, or leave it out"
            )
        for name in names:
            if name not in known:
                raise InvalidConfig(
                    f"the mapping gives partition {name} to member {member}; there is no such partition"
                )
            if name in owners:
                raise InvalidConfig(
                    f"the mapping gives partition {name} to member {owners[name]} and again to member {member}"
                )
            owners[name] = member
    missing = _ordered(known - owners.keys())
    if missing:
        raise InvalidConfig(
            f"the mapping gives {len(missing)} of {len(known)} partitions to no member, the first is {missing[0]}"
        )


def sticky(members: Iterable[str], partitions: Iterable[str], current: Mapping[str, str]) -> dict[str, str]:
    """Partition → member, with counts that differ by one at most, and with the least movement from `current`.

    A partition moves if its current member is among `members` and it goes to another. Entries of `current`
    for other members or partitions do not matter. Without members the result is empty.
    """
    ordered = _ordered(partitions)
    held: dict[str, list[str]] = {member: [] for member in sorted(set(members))}
    if not held:
        return {}
    result = dict.fromkeys(ordered, "")
    for name in ordered:
        if (member := current.get(name)) in held:
            held[member].append(name)
    size, remainder = divmod(len(ordered), len(held))
    # Who holds most may keep one more. That saves a move wherever one can be saved, so no balanced
    # assignment moves less.
    fullest = sorted(held, key=lambda member: -len(held[member]))[:remainder]
    quotas = dict.fromkeys(held, size) | dict.fromkeys(fullest, size + 1)
    for member, names in held.items():
        for name in names[: quotas[member]]:
            result[name] = member
    # The freed partitions go to whoever has fewest, one at a time, so that each stream's spread too.
    places = sorted((count, member) for member, names in held.items() for count in range(len(names), quotas[member]))
    free = (name for name in ordered if not result[name])
    result.update((name, member) for name, (_, member) in zip(free, places, strict=True))
    return result


def _ordered(partitions: Iterable[str]) -> list[str]:
    return sorted(set(partitions), key=partition_order)
