"""What a client asks a pull consumer for."""

from typing import Any

import msgspec
from msgspec import Struct

from echelon.brokers.nats.pull_config import SECOND, check_group
from echelon.errors import InvalidConfig, InvalidPriority


class PullRequest(Struct, frozen=True, kw_only=True):
    """A request for messages. Durations are seconds.

    `batch` is the most messages that are asked for and not taken at any time; `expires` is when the server gives up a
    request that it could not serve. Without a sign of life for two `heartbeat`s (a quarter of `expires` unless
    given), requests count as lost.
    `group` is the consumer's priority group; every request to a consumer that has one must name it. With the policy
    `overflow` the request is served only while at least `min_pending` messages wait or `min_ack_pending` are
    delivered and not acknowledged (either suffices); with `prioritized`, requests with a lower `priority` first.
    """

    batch: int = 500
    expires: float = 30.0
    heartbeat: float = 0.0
    max_bytes: int = 0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0

    @property
    def beat(self) -> float:
        """Seconds between the server's signs of life."""
        return self.heartbeat or min(self.expires / 4, 30.0)

    def encode(self, batch: int, pin: str) -> bytes:
        """The request as JSON, for so many messages, under the id of the pin that the server has given."""
        optional: dict[str, Any] = {
            "max_bytes": self.max_bytes,
            "group": self.group,
            "id": pin,
            "min_pending": self.min_pending,
            "min_ack_pending": self.min_ack_pending,
            "priority": self.priority,
        }
        return msgspec.json.encode(
            {
                "batch": batch,
                "expires": round(self.expires * SECOND),
                "idle_heartbeat": round(self.beat * SECOND),
                **{name: value for name, value in optional.items() if value},
            }
        )


def check_request(request: PullRequest) -> None:
    """Raise InvalidConfig, naming the mistake, unless the server would take such a request."""
    if request.batch < 1:
        raise InvalidConfig(f"a request is for {request.batch} messages; it must be at least 1")
    if request.expires <= 0 or not 0 < request.beat <= request.expires / 2:
        raise InvalidConfig(
            f"a request expires after {request.expires:g} s and has a heartbeat every {request.beat:g} s",
            remedy="Let at least two heartbeats fit into it",
        )
    if request.group:
        check_group(request.group)
    elif request.min_pending or request.min_ack_pending or request.priority:
        raise InvalidPriority("a request has a threshold or a priority, but names no priority group")
    if request.min_pending < 0 or request.min_ack_pending < 0:
        raise InvalidPriority("the thresholds of a request must be at least 1, or absent")
    if not 0 <= request.priority <= 9:
        raise InvalidPriority(f"the priority of a request is {request.priority}; it must be 0 to 9")
