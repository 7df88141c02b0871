"""Advisories: what one record changed that somebody may want to act on."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.group.advisories import (
    Advisory,
    CutAborted,
    CutComplete,
    CutRetired,
    GroupDeleted,
    GroupPaused,
    GroupReset,
    GroupResumed,
    PartitionIdle,
    PartitionMoved,
    SeatLost,
    SeatsUnfilled,
    SeatTaken,
    Watch,
    difference,
)
from echelon.group.config import Config
from tests.group.builders import EPOCH, INTERVAL, Log, grown, make


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


# Seats


def test_a_seat_taken_is_told_with_member_instance_sequence_and_broker_time() -> None:
    log = Watched(make(members=["m1"]))
    sequence = log.later(0.25).sit("a", "m1")
    assert log.last() == [SeatTaken(sequence=sequence, time=EPOCH + 250, member="m1", instance="a")]


def test_a_seat_is_lost_by_timeout() -> None:
    log = held()
    log.run(2.25, "b")
    assert lost(log) == [("m1", "a", "timeout")]


def test_a_seat_is_lost_by_timeout_even_if_another_takes_it_with_the_same_record() -> None:
    log = held()
    log.run(2, "b")
    sequence = log.later(0.25).claim("b", "m1")
    news = log.last()
    assert [(type(one), one.sequence) for one in news[:2]] == [(SeatLost, sequence), (SeatTaken, sequence)]
    assert isinstance(news[0], SeatLost)
    assert news[0].reason == "timeout"


def test_a_seat_is_lost_by_an_administrators_step_down() -> None:
    log = held()
    log.step_down("m1")
    assert lost(log) == [("m1", "a", "admin")]


def test_a_seat_is_lost_by_an_administrator_who_takes_the_member_out() -> None:
    log = held()
    log.reconfigure(make(members=["m2"]))
    assert lost(log) == [("m1", "a", "admin")]


def test_a_seat_is_lost_because_its_holder_left() -> None:
    log = held()
    log.write("a", "leave")
    assert lost(log) == [("m1", "a", "left")]


def test_a_seat_is_lost_because_its_holder_is_leaving() -> None:
    log = held()
    log.step_down("m1", sender="a")
    assert lost(log) == [("m1", "a", "left")]


def test_a_seat_is_lost_by_timeout_by_one_that_is_forgotten_before_anybody_lived_long_enough_to_time_it_out() -> None:
    log = Watched(make(members=["m1", "m2"]))
    log.sit("a", "m1")
    for number in range(20):
        log.later(3).join(f"guest-{number}", "m2")
        log.run(1.5, f"guest-{number}")
    assert ("m1", "a", "timeout") in lost(log)


def test_a_seat_is_lost_because_its_holders_process_is_gone() -> None:
    log = held()
    log.write("b", "leave", gone="a")
    assert lost(log) == [("m1", "a", "gone")]


def test_a_seat_is_lost_to_a_better_priority() -> None:
    log = held()
    log.run(4, "a", "b")
    log.claim("b", "m1")
    assert lost(log) == [("m1", "a", "preempted")]


def test_a_holder_that_comes_back_is_told_as_a_seat_taken() -> None:
    log = held()
    log.run(2.25)
    log.last()
    log.beat("a")
    assert [news.instance for news in log.last() if isinstance(news, SeatTaken)] == ["a"]


def test_more_seats_than_instances_is_told_once() -> None:
    log = Watched(make(members=["m1", "m2", "m3"]))
    sequence = log.join("a", "m1")
    assert log.last() == [SeatsUnfilled(sequence=sequence, time=EPOCH, seats=3, instances=1)]
    log.beat("a")
    assert log.last() == []


def test_as_many_instances_as_seats_is_no_news_until_one_falls_stale() -> None:
    log = held()
    log.run(1, "a", "b")
    log.reconfigure(make(members=["m1", "m2"]))
    assert not [news for news in log.last() if isinstance(news, SeatsUnfilled)]
    log.run(2.25, "a")
    assert [(news.seats, news.instances) for news in log.last() if isinstance(news, SeatsUnfilled)] == [(2, 1)]


def test_an_auto_group_has_never_more_seats_than_instances() -> None:
    log = Watched(make(members=None))
    log.sit("a")
    log.sit("b")
    log.run(2.25, "a")
    assert not [news for news in log.last() if isinstance(news, SeatsUnfilled)]


# Partitions


def test_a_partition_that_gets_its_first_owner_has_not_moved() -> None:
    log = Watched(make(members=["m1"]))
    log.sit("a", "m1")
    assert not [news for news in log.last() if isinstance(news, PartitionMoved)]


def test_a_partition_that_moved_is_told_with_from_to_and_position() -> None:
    log = held()
    log.report("a", "0", 9)
    log.step_down("m1")
    log.claim("b", "m1")
    log.last()
    sequence = log.release("a", "0")
    assert log.last() == [
        PartitionMoved(
            sequence=sequence,
            time=log.clock,
            partition="0",
            from_member="m1",
            from_instance="a",
            to_member="m1",
            to_instance="b",
            position=9,
        )
    ]


def test_a_partition_that_moved_to_another_member_names_both() -> None:
    log = Watched(make(members=["m1"]))
    log.sit("a", "m1")
    log.reconfigure(make(members=["m2"]))
    log.sit("b", "m2")
    log.last()
    log.release("a", "0", "1")
    moved = [news for news in log.last() if isinstance(news, PartitionMoved)]
    assert [(news.partition, news.from_member, news.to_member) for news in moved] == [
        ("0", "m1", "m2"),
        ("1", "m1", "m2"),
    ]


def test_a_partition_that_comes_back_to_the_same_instance_has_not_moved() -> None:
    log = held()
    log.run(2.25)
    log.beat("a")
    assert not [news for news in log.last() if isinstance(news, PartitionMoved)]


def test_a_partition_moved_is_told_though_nobody_owned_it_for_a_while() -> None:
    log = held()
    log.run(2.25, "b")
    log.run(3, "b")
    log.last()
    log.claim("b", "m1")
    moved = [news for news in log.last() if isinstance(news, PartitionMoved)]
    assert [(news.from_instance, news.to_instance) for news in moved] == [("a", "b"), ("a", "b")]


def idle(log: Watched, name: str = "1") -> list[float]:
    return [news.seconds for news in log.last() if isinstance(news, PartitionIdle) and news.partition == name]


def test_a_partition_without_an_owner_is_told_idle_and_again_on_a_timer_while_it_lasts() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.run(1.75, "a")
    assert idle(log) == []
    log.run(0.5, "a")
    assert len(idle(log)) == 1
    log.run(9.5, "a")
    assert idle(log) == []
    log.run(21, "a")
    seconds = idle(log)
    assert len(seconds) == 3
    assert [round(later - earlier) for earlier, later in pairwise(seconds)] == [10, 10]


def test_a_partition_that_was_given_an_owner_is_idle_no_more() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.run(3, "a")
    log.last()
    log.sit("b", "m2")
    log.run(15, "a", "b")
    assert idle(log) == []


def test_the_idle_time_begins_when_the_owner_is_lost() -> None:
    log = held()
    log.run(2.25, "b")
    log.last()
    log.run(2.5, "b")
    (seconds,) = idle(log)
    assert 2 <= seconds <= 2.5


def test_an_idle_partition_is_told_with_what_waits_in_it() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.beat("a", p1=42)
    log.run(2.5, "a")
    assert [news.pending for news in log.last() if isinstance(news, PartitionIdle)] == [42]


# The group


def test_pause_and_resume_are_told() -> None:
    log = held()
    paused = log.write("admin", "pause", until=EPOCH + 5 * INTERVAL)
    assert log.last() == [GroupPaused(sequence=paused, time=EPOCH, until=EPOCH + 5 * INTERVAL)]
    resumed = log.write("admin", "resume")
    assert log.last() == [GroupResumed(sequence=resumed, time=EPOCH)]


def test_a_pause_that_ends_by_itself_is_told_as_resumed() -> None:
    log = held()
    log.write("admin", "pause", until=EPOCH + 500)
    log.last()
    sequence = log.later(0.5).beat("b")
    assert [(type(news), news.sequence) for news in log.last()] == [(GroupResumed, sequence)]


def test_a_resume_of_a_group_that_is_not_paused_is_no_news() -> None:
    log = held()
    log.write("admin", "resume")
    assert log.last() == []


def test_a_cut_is_told_when_it_is_complete_and_when_it_is_retired() -> None:
    log = held()
    cut = log.write("admin", "cut")
    assert log.last() == []
    complete = log.part("a", "0", "1", cut=cut)
    assert log.last() == [CutComplete(sequence=complete, time=EPOCH, cut=cut)]
    retired = log.write("admin", "retire", cut=cut)
    assert log.last() == [CutRetired(sequence=retired, time=EPOCH, cut=cut)]


def test_a_periodic_cut_that_gives_way_to_a_newer_one_is_told_retired() -> None:
    log = held(cuts_kept=1)
    cuts: list[int] = []
    for _ in range(2):
        cuts.append(log.write("admin", "cut", periodic=True))
        log.part("a", "0", "1", cut=cuts[-1])
    assert [type(news) for news in log.last()] == [CutComplete, CutComplete, CutRetired]


@pytest.mark.parametrize("by", ["reset", "pause", "growth", "cut_abort", "time"])
def test_an_aborted_cut_is_told(by: str) -> None:
    log = held(cut_time=2.0)
    cut = log.write("admin", "cut")
    match by:
        case "growth":
            log.reconfigure(grown(make(members=["m1"], cut_time=2.0), 3, 0))
        case "time":
            log.run(2.25, "a", "b")
        case _:
            log.write("admin", by, positions={"0": 1}, cut=cut if by == "cut_abort" else None)
    assert [news.cut for news in log.last() if isinstance(news, CutAborted)] == [cut]


def test_a_reset_is_told_with_the_positions_it_set() -> None:
    log = held()
    log.report("a", "1", 3)
    sequence = log.write("admin", "reset", positions={"0": 7})
    assert log.last() == [GroupReset(sequence=sequence, time=EPOCH, positions={"0": 7})]


def test_a_delete_is_told() -> None:
    log = held()
    sequence = log.write("admin", "delete")
    assert log.last() == [GroupDeleted(sequence=sequence, time=EPOCH)]


def test_progress_and_heartbeats_are_no_news() -> None:
    log = held()
    log.run(1, "a", "b")
    log.report("a", "0", 9)
    log.beat("a", p0=7)
    assert log.last() == []


# Copies


def all_news() -> list[Advisory]:
    """Advisories of every kind, from one log."""
    log = Watched(make(4, members=["m1", "m2"], cuts_kept=1))
    log.sit("a", "m1")
    log.sit("b", "m2")
    log.run(2.25, "a")
    for _ in range(2):
        cut = log.write("admin", "cut", periodic=True)
        log.part("a", *(name for name, owner in log.owners().items() if owner == "a"), cut=cut)
    log.write("admin", "cut")
    log.write("admin", "pause")
    log.write("admin", "resume")
    log.run(11, "a")
    log.write("admin", "reset", positions={"0": 1})
    log.step_down("m1")
    log.sit("c", "m1")
    log.release("a", *(name for name, owner in log.owners().items() if owner == "a"))
    log.write("c", "leave")
    log.write("admin", "delete")
    return log.last()


def test_every_kind_has_come_up() -> None:
    kinds = {type(news) for news in all_news()}
    assert kinds == set(Advisory.__subclasses__())


def test_no_two_advisories_have_one_id() -> None:
    ids = [news.id for news in all_news()]
    assert len(set(ids)) == len(ids)


def test_an_id_is_made_of_the_records_sequence_and_the_kind() -> None:
    assert all(news.id.startswith(f"{news.sequence}-{news.kind}") for news in all_news())


def test_who_reads_the_same_log_tells_the_same_with_equal_ids() -> None:
    one, other = all_news(), all_news()
    assert one == other
    assert [news.id for news in one] == [news.id for news in other]


def test_an_advisory_as_json_names_its_kind() -> None:
    for news in all_news():
        assert msgspec.json.decode(msgspec.json.encode(news))["kind"] == news.kind


@settings(max_examples=30)
@given(st.integers(0, 40))
def test_who_begins_to_watch_later_tells_the_same_from_then_on(start: int) -> None:
    log = held()
    log.run(2.25, "b")
    log.claim("b", "m1")
    log.run(3, "b")
    log.write("admin", "reset", positions={"0": 1})
    replay, late = Log(), Log()
    watch, late_watch, news, late_news = Watch(replay.world), Watch(late.world), list[Advisory](), list[Advisory]()
    for index, entry in enumerate(log.entries):
        for reader in (replay, late):
            reader.clock = entry.time
            reader.append(entry.data)
        news += watch.look(replay.world)
        if index == start:
            late_watch = Watch(late.world.copy())
        elif index > start:
            late_news += late_watch.look(late.world)
    begin = log.entries[min(start, len(log.entries) - 1)].sequence
    assert late_news == [one for one in news if one.sequence > begin]


def test_equal_worlds_differ_by_nothing() -> None:
    log = held()
    assert difference(log.world, log.world.copy()) == []
