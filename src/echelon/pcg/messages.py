"""From what a consumer delivers to messages as handlers know them: without the partition token, with their key."""

from typing import Final, NamedTuple

from echelon.brokers.nats.columns import Headers, parse_headers
from echelon.brokers.nats.pull_message import Pulled
from echelon.keys import extractor, matches
from echelon.model import Message
from echelon.pcg.config import ElasticConfig, GroupConfig

_REMEMBERED: Final = 65_536
# What servers add to the headers of whoever published the message.
_SERVERS: Final = (b"NATS/1.0", b"Nats-Pin-Id:", b"Nats-Stream-Source:")


class _Place(NamedTuple):
    partition: str
    subject: str
    key: bytes


class Translator:
    """Makes messages. Where a subject belongs is remembered.

    In a static group the key is the partition's number: what the partition was computed from is not known.
    """

    def __init__(self, config: GroupConfig) -> None:
        filters = config.partitioning_filters if isinstance(config, ElasticConfig) else ()
        self._keys = [(each.filter, extractor(each.key)) for each in filters]
        self._is_static = not isinstance(config, ElasticConfig)
        self._places: dict[bytes, _Place] = {}
        self._block = b""
        self._headers: Headers = ()

    def message(self, pulled: Pulled) -> Message:
        """The message, as a handler gets it."""
        place = self._places.get(pulled.subject)
        if place is None:
            if len(self._places) >= _REMEMBERED:
                self._places.clear()
            place = self._places[pulled.subject] = self._place(pulled.subject)
        if pulled.header != self._block:  # Most often only the pin is in it.
            self._block, self._headers = pulled.header, _headers(pulled.header)
        return Message(
            place.partition, pulled.sequence, place.subject, place.key, self._headers, pulled.data, pulled.time
        )

    def _place(self, subject: bytes) -> _Place:
        partition, _, rest = subject.decode(errors="replace").partition(".")
        if self._is_static:
            return _Place(partition, rest, partition.encode())
        found = [extract(rest, (), None) for pattern, extract in self._keys if matches(pattern, rest)]
        return _Place(partition, rest, (found[0] if found else None) or rest.encode())


def _headers(block: bytes) -> Headers:
    lines = [line for line in block.split(b"\r\n") if line and not line.startswith(_SERVERS)]
    return parse_headers(b"\r\n".join(lines)) if lines else ()
