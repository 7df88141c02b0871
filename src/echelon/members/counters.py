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
    claims: int = 0
    """How often it took its seat."""
