"""One group as a whole, for people and programs."""

from collections.abc import Mapping

import msgspec

from echelon.group.world import World
from echelon.ops.progress import Ends
from echelon.ops.status import group_row, when


def describe(group: str, world: World, ends: Mapping[str, Ends], now: int) -> dict[str, object]:
    """The group's state, and its configuration without what other views show (positions, ends)."""
    config = world.config
    assert config is not None
    row = group_row(group, world, now)
    found: dict[str, object] = {
        "group": group,
        "kind": row.kind,
        "membership": row.membership,
        "state": row.state,
        "paused_until": when(world.paused.until) if world.paused is not None and world.paused.until else None,
        "identity": world.identity,
        "made": when(world.made),
        "last_record": world.sequence,
        "last_record_time": when(world.broker_time),
        "seats": row.seats,
        "active": row.active,
        "standby": row.standby,
        "partitions": row.partitions,
        "idle": row.idle,
        "lag": sum(each.lag for each in ends.values()),
        "parked_keys": sum(len(partition.parked) for partition in world.partitions.values()),
        "cuts": len(world.cuts),
        "streams": [_stream(stream) for stream in msgspec.to_builtins(config.streams)],
        "members": list(config.seats()) if config.membership != "auto" else None,
        "mapping": msgspec.to_builtins(config.mapping),
    }
    names = [name for name in config.__struct_fields__ if name not in (*found, "positions", "ends")]
    return found | {name: msgspec.to_builtins(getattr(config, name)) for name in names}


def _stream(stream: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in stream.items() if name != "identity"}
