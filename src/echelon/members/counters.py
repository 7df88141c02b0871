"""What a member counts, in one small object that anybody may read at any time."""

from msgspec import Struct, field


class Counters(Struct):
    """A member's counters since it started. Durations are seconds."""

    partitions: int = 0
    """Partitions held now."""
    messages: int = 0
    """Messages handled."""
    retries: int = 0
    dead_letters: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    """Messages that wait, by partition held."""
    last_drain: float = 0.0
    longest_drain: float = 0.0
    fenced: int = 0
    """How often it stopped processing because it could not see its own records."""

    def note_drain(self, seconds: float) -> None:
        """A partition was given up; it took this long from the order to the end."""
        self.last_drain = seconds
        self.longest_drain = max(self.longest_drain, seconds)
