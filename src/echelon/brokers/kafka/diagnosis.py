"""Why a record was not stored in time: librdkafka tries again until then, and does not say what it heard."""

import asyncio
from typing import Final

from echelon.brokers.kafka.connection import Connection
from echelon.errors import BrokerError, StorageFull, StreamNotFound, Unreachable

_SECONDS: Final = 2.0  # Longer than a topic must be missing in a cluster to count as such.


async def why_not_stored(connection: Connection, topic: str, error: Unreachable) -> BrokerError:
    """What to raise instead of `error`, as far as the brokers tell: StorageFull, StreamNotFound, or Unreachable."""
    try:
        async with asyncio.timeout(_SECONDS):
            found = await connection.admin.topic(topic)
    except (Unreachable, TimeoutError):
        return Unreachable(
            f"{error.what}; no broker answers at {connection.settings.servers}",
            remedy="Check that one runs and can be reached. If its log folders fail, a broker stops; its log says so",
        )
    except StreamNotFound as missing:  # It was deleted while librdkafka tried.
        return missing
    if found.leaderless:
        return StorageFull(
            f"{error.what}; its replicas are on brokers that run, and none of them can store it",
            remedy="See to the brokers' log folders",
        )
    return error
