"""How to reach a Kafka: from its URL, options and the environment to librdkafka's properties.

An option wins over the URL, the URL over the environment. Nothing here is ever logged.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from echelon.errors import InvalidConfig

_ENVIRONMENT: Final = "ECHELON_KAFKA_"
# The options, besides `tls` and `timeout`, and the property of librdkafka that each one sets.
_PROPERTIES: Final = {
    "sasl_mechanism": "sasl.mechanism",
    "user": "sasl.username",
    "password": "sasl.password",
    "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
}
_PREFIX: Final = "kafka."
_TRUE: Final = ("1", "true", "yes", "on")
_LONGEST_REQUEST: Final = 300_000  # in milliseconds; librdkafka takes no more
_FETCH: Final = 4 << 20


class Settings:
    """What every client of one connection is configured with.

    `servers` may be shown; `properties` hold credentials and may not. `timeout` is how long, in seconds, a
    request may take until the broker counts as unreachable.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        user, password, self.servers = _parse(url)
        values = {name: _from_environment(name) for name in (*_PROPERTIES, "tls", "timeout")}
        values |= {"user": user, "password": password} if user else {}
        own = {name.removeprefix(_PREFIX): str(value) for name, value in options.items() if name.startswith(_PREFIX)}
        for name, value in options.items():
            if name in values:
                values[name] = "" if value is None else str(value)
            elif not name.startswith(_PREFIX):
                raise InvalidConfig(
                    f"'{name}' is no option of a Kafka broker",
                    remedy=f"Use {', '.join(values)}, or any property of librdkafka after '{_PREFIX}'",
                )
        has_sasl = bool(values["user"] or values["sasl_mechanism"])
        has_tls = values["tls"].lower() in _TRUE or any(values[name] for name in ("ca", "cert", "key"))
        self.timeout = _seconds(values["timeout"] or "5")
        self.properties = {
            "bootstrap.servers": self.servers,
            "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT"),
            **({"sasl.mechanism": "SCRAM-SHA-512"} if has_sasl else {}),
            # When no broker answers, go on asking the known ones: starting over with the bootstrap servers, as is
            # the default, takes a second and a half after they are back, instead of a tenth.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": "200",
            # A leader that hangs is given up after this long, for the one that was elected in its place; the default is
            # a minute. Not sooner than after two seconds: a fetch that finds nothing is answered after half a second.
            "socket.timeout.ms": str(min(max(int(self.timeout * 1000), 2000), _LONGEST_REQUEST)),
            "log_level": "0",  # What goes wrong comes as errors; librdkafka's log would go to stderr.
            **{_PROPERTIES[name]: values[name] for name in _PROPERTIES if values[name]},
            **own,
            "allow.auto.create.topics": "false",  # To ask for a topic, or to write to it, would make it.
        }
        self.reads_uncommitted = own.get("isolation.level") == "read_uncommitted"

    def consumer(self, group: str) -> dict[str, str]:
        """The properties of a consumer that reads from where it is told, on behalf of a group."""
        return {
            "isolation.level": "read_committed",
            "fetch.error.backoff.ms": "100",
            "fetch.queue.backoff.ms": "5",  # The default of a second is waited out whenever the queue was full.
            "queued.max.messages.kbytes": "4096",
            # To come within the timeout over a slow line too; the default is 50 MB. Not less than a message may have.
            "fetch.max.bytes": str(max(_FETCH, int(self.properties.get("message.max.bytes", 0)))),
            **self.properties,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
        }

    def producer(self) -> dict[str, str]:
        """The properties of a producer that stores every record once and in order, or says that it did not."""
        return {
            "linger.ms": "0",
            "partitioner": "murmur2_random",
            "message.max.bytes": "100000000",  # The broker's limit counts.
            "queue.buffering.max.kbytes": "65536",
            "topic.metadata.propagation.max.ms": "2000",
            **self.properties,
            "message.timeout.ms": str(int(self.timeout * 1000)),
            "enable.idempotence": "true",
            "acks": "all",
        }


def _parse(url: str) -> tuple[str, str, str]:
    """User, password and `host:port[,host:port]`. Errors do not repeat the URL, which may hold a password."""
    scheme, _, rest = url.partition("://")
    credentials, _, servers = rest.rpartition("@")
    if scheme != "kafka" or not servers:
        raise InvalidConfig("that is no Kafka URL", remedy="Write kafka://host:port or kafka://user:password@host:port")
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or len(port) > 5 or not 1 <= int(port) <= 65535:
            raise InvalidConfig(
                f"'{server}' in the Kafka URL is not a host and a port", remedy="Write kafka://host:port,host:port"
            )
    user, _, password = credentials.partition(":")
    return unquote(user), unquote(password), servers


def _from_environment(option: str) -> str:
    return os.environ.get(_ENVIRONMENT + option.upper(), "")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise InvalidConfig(f"the timeout of a Kafka broker is '{text}'", remedy="Give 0.1 to 3600 seconds")
    return seconds
