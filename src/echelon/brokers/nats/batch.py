"""Messages as the server sent them, column by column."""

from msgspec import Struct, field


class Batch(Struct):
    """Messages in order. `headers` are blocks of lines, `times` are milliseconds, `pending` counts what lay ahead."""

    headers: list[bytes] = field(default_factory=list)
    subjects: list[bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    pending: int = 0

    @property
    def end(self) -> int:
        """One past the last sequence; 0 if there are no messages."""
        return self.sequences[-1] + 1 if self.sequences else 0

    def extend(self, other: "Batch") -> None:
        """Add the messages that follow."""
        self.headers += other.headers
        self.subjects += other.subjects
        self.sequences += other.sequences
        self.times += other.times
        self.data += other.data
        self.pending = other.pending
