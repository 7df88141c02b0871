"""How an instance hands a partition over: draining, releasing; and what it does at a reset."""

from echelon.group.actions import Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.records import Progress, Release
from tests.group.builders import Log, Member, make, of, sent, sitting

# Draining and releasing


def test_a_partition_that_moves_is_drained_and_then_released_with_its_position() -> None:
    member = sitting()
    member.run("0").busy = member.run("1").busy = True
    member.log.write("admin", "pause")
    member.read()
    assert of(Drain, member.act()) == [Drain("0"), Drain("1")]
    assert not member.records(Release)
    member.run("0").busy = False
    member.run("0").position = 9
    (release,) = member.records(Release)
    assert release.progress == {"0": Progress(member.run("0").epoch, 9, {})}


def test_a_release_is_repeated_until_it_is_read_that_the_epoch_is_over() -> None:
    member = sitting()
    member.log.write("admin", "pause")
    member.read()
    member.act()
    first = member.records(Release)
    assert first
    member.own.stamp(first[0], member.now)  # It is sent, and gets lost.
    assert not member.records(Release)
    member.later(0.25)
    assert member.records(Release)[0].progress == first[0].progress
    member.settle()
    assert member.log.owners() == {"0": None, "1": None}
    assert (member.own.runs, member.records(Release)) == ({}, [])


def test_after_a_release_was_sent_nothing_more_is_processed_under_its_epoch_whatever_is_read() -> None:
    member = sitting()
    member.log.write("admin", "pause")
    member.read()
    member.act()
    (release,) = member.records(Release)
    member.own.stamp(release, member.now)  # It is on its way.
    member.log.write("admin", "resume")
    member.later(0.25).read()
    actions = member.act()
    assert not of(GoOn, actions)
    assert sent(Release, actions)
    epoch = release.progress["0"].epoch
    member.settle()
    assert member.run("0").epoch > epoch
    assert member.run("0").state == "running"


def test_what_need_not_be_released_after_all_goes_on_under_its_epoch() -> None:
    member = sitting()
    member.run("0").busy = True
    epoch = member.run("0").epoch
    member.log.write("admin", "pause")
    member.read()
    member.act()
    member.log.write("admin", "resume")
    member.read()
    assert GoOn("0") not in member.decide()
    member.run("0").busy = False
    assert GoOn("0") in member.decide()
    member.settle()
    assert (member.run("0").epoch, member.run("0").state) == (epoch, "running")


def test_an_owner_that_still_waits_sends_no_release() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    log.write("admin", "pause")
    member.live(1.875)
    assert log.owners() == {"0": "b", "1": "b"}
    member.live(0.25)
    assert log.owners() == {"0": None, "1": None}


def test_what_was_given_up_unstarted_is_not_started_under_that_epoch() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    log.write("admin", "pause")
    member.live(1.875)
    member.later(0.125).read()
    (release,) = member.records(Release)
    member.own.stamp(release, member.now)  # It is on its way.
    log.write("admin", "resume")
    member.read()
    assert not of(Start, member.decide())
    member.later(0.25).settle()
    assert member.run("0").epoch == log.partition("0").epoch > release.progress["0"].epoch


def test_a_handler_that_does_not_end_in_the_drain_time_is_cancelled() -> None:
    member = sitting(drain_time=2.0)
    member.run("0").busy = True
    member.log.write("admin", "pause")
    actions = member.live(2)
    assert Halt("0") not in actions
    assert Halt("0") in member.live(0.25)


def test_a_handler_that_does_not_end_in_the_drain_time_once_it_is_cancelled_makes_the_process_exit() -> None:
    member = sitting(drain_time=2.0)
    member.run("0").busy = True
    member.log.write("admin", "pause")
    member.live(2.25)
    actions = member.live(1.875)
    assert not of(Exit, actions)
    member.later(0.3)
    assert member.decide() == [Exit("stuck")]


def test_what_is_lost_is_cancelled_at_once_and_forgotten_when_it_has_ended() -> None:
    member = sitting()
    member.run("0").busy = True
    member.log.join("b", "m1")
    member.log.write("b", "leave", gone="a")
    member.read()
    assert Halt("0") in member.act()
    assert Close("0") not in member.decide()
    member.run("0").busy = False
    assert Close("0") in member.decide()


# Resets


def test_after_a_reset_running_handlers_end_uncounted_and_then_the_partition_is_started_anew() -> None:
    member = sitting()
    member.run("0").busy = True
    reset = member.log.write("admin", "reset", positions={"0": 40})
    member.read()
    assert [action for action in member.act() if not isinstance(action, Send)] == [Drain("0")]
    member.run("0").position = 3
    member.run("0").busy = False
    member.settle()
    assert (member.run("0").epoch, member.run("0").position) == (reset, 40)
    assert member.log.partition("0").position == 40


def test_a_reset_does_not_touch_partitions_that_it_does_not_name() -> None:
    member = sitting()
    member.log.write("admin", "reset", positions={"0": 40})
    actions = member.settle()
    assert not [action for action in actions if getattr(action, "partition", None) == "1"]
