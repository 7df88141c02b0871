"""A log whose advisories are kept, for their tests."""

from echelon.group.advisories import (
    Advisory,
    SeatLost,
    Watch,
)
from echelon.group.config import Config
from tests.group.builders import Log, make


class Watched(Log):
    """A log whose advisories are kept as they come."""

    def __init__(self, config: Config) -> None:
        self.watch: Watch | None = None
        self.news: list[Advisory] = []
        super().__init__(config)
        self.watch = Watch(self.world)

    def append(self, data: bytes) -> int:
        sequence = super().append(data)
        if self.watch is not None:
            self.news += self.watch.look(self.world)
        return sequence

    def last(self) -> list[Advisory]:
        """The advisories since this was last asked."""
        news, self.news = self.news, []
        return news


def held(**options: object) -> Watched:
    """`a` holds m1 and owns both partitions, `b` stands by for it."""
    log = Watched(make(members=["m1"], **options))
    log.sit("a", "m1", priority=5)
    log.join("b", "m1")
    log.last()
    return log


def lost(log: Watched) -> list[tuple[str, str, str]]:
    return [(news.member, news.instance, news.reason) for news in log.last() if isinstance(news, SeatLost)]
