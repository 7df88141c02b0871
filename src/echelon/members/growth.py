"""Topics that gain partitions while the group runs: the change of configuration that takes them up."""

import logging
from collections.abc import Awaitable, Callable

from msgspec import structs

from echelon.brokers.base import StreamInfo
from echelon.errors import InvalidConfig
from echelon.group.config import Config, Stream, check_change
from echelon.model import partition_name

logger = logging.getLogger(__name__)


async def grown(config: Config, info: Callable[[Stream], Awaitable[StreamInfo]]) -> Config | None:
    """The configuration with all partitions that the streams have now; None if there are no more than it knows.

    The ends of the partitions that were there before are recorded, so that keys keep their order across the growth.
    New partitions start at their beginning. A mapped group refuses until its mapping covers them.
    Keys move only to new partitions if there are a multiple of the old ones; else a warning says what that means.
    """
    alone = len(config.streams) == 1
    streams: list[Stream] = []
    positions, ends = dict(config.positions), {}
    for stream in config.streams:
        found = (await info(stream)).bounds if stream.partitioning == "native" else {}
        streams.append(structs.replace(stream, partitions=max(stream.partitions, len(found))))
        for number, bounds in found.items():
            name = partition_name(stream.name, number, alone=alone)
            if name in config.positions:
                ends[name] = bounds.end
            else:
                positions[name] = bounds.first
    if len(positions) == len(config.positions):
        return None
    new = structs.replace(config, streams=tuple(streams), positions=positions, ends=(*config.ends, ends))
    try:
        check_change(config, new)
    except InvalidConfig as error:
        logger.warning("partitions were added, and the group does not take them: %s", error)
        return None
    for old, stream in zip(config.streams, streams, strict=True):
        if stream.partitions % old.partitions:
            logger.warning(
                "%s has grown from %d partitions to %d, which is no multiple: keys that now go to another one of the "
                "old partitions may be processed out of order there",
                stream.name,
                old.partitions,
                stream.partitions,
            )
    return new
