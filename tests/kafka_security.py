"""The ways of proving to a Kafka who one is: what the broker's properties say, and what a client shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Certificates

_USER, _PASSWORD = "alice", "wonderland"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

# The protocol of the listener, and SASL's mechanism.
_WAYS = {
    "plain": ("SASL_PLAINTEXT", "PLAIN"),
    "scram-sha-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "scram-sha-512": ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    "tls": ("SSL", None),
    "mutual-tls": ("SSL", None),
    "plain-tls": ("SASL_SSL", "PLAIN"),
    "scram-sha-512-tls": ("SASL_SSL", "SCRAM-SHA-512"),
}
KAFKA_WAYS = tuple(_WAYS)

# For KafkaServer: the storage tool makes the SCRAM user, who cannot come in to make itself.
FORMAT_OPTIONS = tuple(
    part
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for part in ("--add-scram", f"{mechanism}=[name={_USER},password={_PASSWORD}]")
)


@dataclass(frozen=True)
class KafkaSecurity:
    """`properties` are for the broker, the rest for the client; what the way does not need is None."""

    properties: Mapping[str, str]
    protocol: str
    mechanism: str | None = None
    user: str | None = None
    password: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def client(self) -> dict[str, str]:
        """The same in the words of librdkafka."""
        words = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }
        return {word: str(value) for word, value in words.items() if value is not None}


def kafka_security(way: str, certificates: Certificates) -> KafkaSecurity:
    """One of `KAFKA_WAYS`. Ways of the same properties can share a broker."""
    protocol, mechanism = _WAYS[way]
    properties = {"listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    has_tls = protocol.endswith("SSL")
    if has_tls:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.server.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.ca),
            "ssl.client.auth": "required" if way == "mutual-tls" else "none",
        }
    if mechanism:
        listener = "listener.name.client"
        properties |= {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{listener}.plain.sasl.jaas.config": f'{_PLAIN} required user_{_USER}="{_PASSWORD}";',
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        }
    is_mutual = way == "mutual-tls"
    return KafkaSecurity(
        properties,
        protocol,
        mechanism,
        user=_USER if mechanism else None,
        password=_PASSWORD if mechanism else None,
        ca=certificates.ca if has_tls else None,
        certificate=certificates.client.certificate if is_mutual else None,
        key=certificates.client.key if is_mutual else None,
    )
