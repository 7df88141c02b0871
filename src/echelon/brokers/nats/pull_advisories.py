"""What the server tells of pins: a client of a consumer was pinned, or is pinned no more."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec
from msgspec import Struct

from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.wire import Sink

logger = logging.getLogger(__name__)

_ROOT: Final = "$JS.EVENT.ADVISORY.CONSUMER"


class Pinned(Struct, frozen=True, tag_field="type", tag="io.nats.jetstream.advisory.v1.consumer_group_pinned"):
    """A client was pinned. `timestamp` is the server's, as JSON has it."""

    stream: str
    consumer: str
    group: str
    pinned_id: str
    id: str = ""
    timestamp: str = ""
    account: str = ""
    domain: str = ""


class Unpinned(Struct, frozen=True, tag_field="type", tag="io.nats.jetstream.advisory.v1.consumer_group_unpinned"):
    """A client lost its pin: by an administrator, or because it asked for nothing for too long."""

    stream: str
    consumer: str
    group: str
    reason: Literal["admin", "timeout"]
    id: str = ""
    timestamp: str = ""
    account: str = ""
    domain: str = ""


Advisory = Pinned | Unpinned


@asynccontextmanager
async def pin_advisories(
    connection: Connection, stream: str = "*", consumer: str = "*"
) -> AsyncGenerator["asyncio.Queue[Advisory]", None]:
    """The advisories of a consumer, or of all, as they come; those while there is no connection are lost.

    Raises Unreachable.
    """
    queue: asyncio.Queue[Advisory] = asyncio.Queue()

    def take(subject: bytes, _reply: bytes, _header: bytes, payload: bytes) -> None:
        try:
            queue.put_nowait(msgspec.json.decode(payload, type=Advisory))
        except msgspec.DecodeError as error:
            logger.warning("an advisory on %s cannot be read: %s", subject.decode(errors="replace"), error)

    subscriptions = [
        await connection.listen(f"{_ROOT}.{kind}.{stream}.{consumer}", Sink(take)) for kind in ("PINNED", "UNPINNED")
    ]
    try:
        yield queue
    finally:
        for subscription in subscriptions:
            await connection.unsubscribe(subscription)
