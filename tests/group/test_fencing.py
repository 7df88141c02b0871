"""When an instance stops by itself: it does not see its own records, or its handlers do not end."""

from echelon.group.actions import Action, Exit, Halt
from echelon.group.records import Record
from tests.group.builders import INTERVAL, Member, of, sent, sitting


def test_who_does_not_read_its_own_records_for_an_interval_stops_processing() -> None:
    member = sitting()
    member.later(1)
    assert not of(Halt, member.decide())
    member.later(0.001)
    assert of(Halt, member.decide()) == [Halt("0"), Halt("1")]


def test_who_was_fenced_goes_on_with_partitions_whose_epoch_is_unchanged() -> None:
    member = sitting()
    member.later(1.1)
    member.act()
    member.read()
    member.settle()
    assert [run.state for run in member.own.runs.values()] == ["running", "running"]


def test_who_was_fenced_starts_anew_what_it_has_lost_and_regained() -> None:
    member = sitting()
    epoch = member.run("0").epoch
    member.later(1.1)
    member.act()
    member.log.run(2.25)
    member.now += 2250
    member.settle()
    assert member.run("0").epoch > epoch


def test_who_was_fenced_does_not_go_on_while_cancelled_handlers_still_run() -> None:
    member = sitting()
    member.run("0").busy = True
    member.later(1.1)
    member.act()
    member.read()
    member.settle()
    assert (member.run("0").state, member.run("1").state) == ("halted", "running")


def deaf(member: Member, intervals: float) -> list[Action]:
    """It can write and reads nothing: what it did last."""
    actions: list[Action] = []
    for _ in range(round(intervals * 8)):
        member.later(0.125)
        actions = member.act()
        if sent(Record, actions):
            member.own.stored(INTERVAL, member.now)
    return actions


def test_who_can_write_but_not_read_exits_after_it_was_fenced_for_two_intervals() -> None:
    member = sitting()
    assert not of(Exit, deaf(member, 2.875))
    assert deaf(member, 0.5) == [Exit("unread")]


def test_who_can_neither_write_nor_read_stays_and_waits() -> None:
    member = sitting()
    for _ in range(80):
        assert not of(Exit, member.later(0.125).act())


def test_after_an_outage_nobody_exits_for_what_it_could_not_read_then() -> None:
    member = sitting()
    deaf(member, 0.5)
    member.later(20)
    member.own.stored(INTERVAL, member.now)
    assert not of(Exit, member.decide())
