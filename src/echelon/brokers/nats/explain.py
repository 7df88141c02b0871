"""What nats-py and the server say of a connection's trouble, as errors that tell what to do about it."""

import re
import ssl
from typing import Final

from nats import errors

from echelon.errors import BrokerError, Denied, Unreachable

_REFUSAL: Final = re.compile("authori[sz]ation|authentication", re.IGNORECASE)
_VIOLATION: Final = re.compile(r'for (Publish|Subscription) to "([^"]*)"', re.IGNORECASE)


def telling(known: Exception | None, new: Exception) -> Exception:
    """Which of two errors tells more: a server that refuses a user says so, and then breaks the connection."""
    breaks = isinstance(new, ConnectionResetError | BrokenPipeError | errors.UnexpectedEOF)
    return known if known and breaks and _REFUSAL.search(str(known)) else new


def explain(error: Exception | None, place: str, *, wants_proof: bool) -> BrokerError:
    """Why there is no connection to `place`. `wants_proof`: it may close one because of who the user is, or is not."""
    words = str(error or "").removeprefix("nats: ").strip("'")
    if isinstance(error, ssl.SSLError):
        return Denied(
            f"no TLS connection to {place}: {words}",
            remedy="Give the server's authority as tls_ca, and tls_cert and tls_key if it wants a certificate",
        )
    if "TLS" in words:
        return Denied(f"{place} does not speak TLS", remedy="Turn it on there, or use nats:// without TLS options")
    if isinstance(error, ConnectionResetError) and wants_proof:
        return Denied(
            f"{place} closed the connection when it should have let the user in",
            remedy="Check the credentials, and give tls_cert and tls_key if it wants a certificate",
        )
    if _REFUSAL.search(words):
        return Denied(f"{place} does not accept the credentials: {words}", remedy="Check them, and their permissions")
    reason = f": {words}" if words else ""
    return Unreachable(f"no NATS server answers at {place}{reason}", remedy="Check the address, and that it runs")


def violation(words: str) -> tuple[str, Denied]:
    """The subject that the user may not publish to, or nothing if it may not subscribe to one; and the error."""
    found = _VIOLATION.search(words)
    kind, subject = found.groups() if found else ("Subscription", "")
    publishes = kind.lower() == "publish"
    may = "publish to" if publishes else "subscribe to"
    error = Denied(f"the user may not {may} {subject}", remedy="Give it the permission, or use another user")
    return subject if publishes else "", error
