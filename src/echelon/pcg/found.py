"""A JetStream-native group as it was found."""

from msgspec import Struct

from echelon.pcg.config import GroupConfig, Kind


class Found(Struct, frozen=True):
    """A group, as it is configured, and the revision of its entry."""

    kind: Kind
    stream: str
    name: str
    config: GroupConfig
    revision: int

    @property
    def consumed(self) -> str:
        """The stream that members consume from: the group's own, or its work queue."""
        return self.stream if self.kind == "static" else f"{self.stream}-{self.name}"

    def consumer(self, member: str) -> str:
        """The name of a member's consumer."""
        return f"{self.name}-{member}" if self.kind == "static" else member
