"""Advisories of the whole group, and what holds for all: everybody tells the same, with the same ids."""

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
    Watch,
    difference,
)
from tests.group.builders import EPOCH, INTERVAL, Log, grown, make
from tests.group.watched import Watched, held


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
