"""A message as a pull consumer delivers it, and the ways to answer it."""

import re
from typing import Final

import msgspec

from echelon.brokers.nats.api import NO_RESPONDERS
from echelon.brokers.nats.columns import Headers, parse_headers
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.pull_config import SECOND
from echelon.errors import ConsumerNotFound

_PIN: Final = re.compile(rb"\r\nNats-Pin-Id: ?([^\r]*)\r\n")


class Pulled:
    """One delivery of a message.

    Until it is answered (`ack`, `nak`, `term`) the server counts it as pending, and delivers it again when the
    consumer's ack wait has passed since the delivery or the last `in_progress`. Answers but `double_ack` do not block
    and may be lost with the connection: then the message is delivered again.
    """

    __slots__ = (
        "_connection",
        "data",
        "deliveries",
        "header",
        "number",
        "pending",
        "reply",
        "sequence",
        "subject",
        "time",
    )

    def __init__(self, connection: Connection, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>[.<token>]
        words = reply.split(b".")
        first = 4 if len(words) == 9 else 6
        self._connection = connection
        self.subject = subject
        self.reply = reply
        self.header = header
        self.data = data
        self.deliveries = int(words[first])
        """How often the message was delivered, this time included."""
        self.sequence = int(words[first + 1])
        self.number = int(words[first + 2])
        """Counts the deliveries of the consumer from 1."""
        self.time = int(words[first + 3]) // 1_000_000
        """When it was stored, in milliseconds."""
        self.pending = int(words[first + 4])
        """How many messages lay ahead for the consumer."""

    @property
    def headers(self) -> Headers:
        """The message's headers, with those that the server added."""
        return parse_headers(self.header)

    @property
    def pin(self) -> str:
        """The id under which its client was pinned; empty if the consumer pins nobody."""
        found = _PIN.search(self.header)
        return found[1].decode(errors="replace") if found else ""

    def ack(self) -> None:
        """It was processed."""
        self._connection.send(self.reply, b"+ACK")

    async def double_ack(self) -> None:
        """It was processed; returns when the server has taken note.

        That says nothing about who else may have processed it: the server also answers a client that is pinned no
        more. Raises Unreachable if there is no answer (the server may have taken note or not), ConsumerNotFound.
        """
        reply = await self._connection.request(self.reply.decode(), b"+ACK")
        if reply.status[0] == NO_RESPONDERS:
            raise ConsumerNotFound(f"the consumer that delivered message {self.sequence} is not there any more")

    def nak(self, delay: float = 0.0) -> None:
        """It was not processed; deliver it again, after so many seconds."""
        body = b" " + msgspec.json.encode({"delay": round(delay * SECOND)}) if delay > 0 else b""
        self._connection.send(self.reply, b"-NAK" + body)

    def in_progress(self) -> None:
        """It is being processed; the ack wait begins anew."""
        self._connection.send(self.reply, b"+WPI")

    def term(self, reason: str = "") -> None:
        """It will never be processed; do not deliver it again."""
        self._connection.send(self.reply, f"+TERM {reason}".rstrip().encode())
