"""Every way in which a partition changes hands is told with its record and its cause."""

import pytest

from echelon.errors import UnknownName
from echelon.group.world import World
from echelon.ops.changes import changes
from echelon.ops.why import Answer, why
from tests.group.builders import EPOCH, INTERVAL, Log, make

A, B, C = "a-0001-xyz", "b-0002-xyz", "c-0003-xyz"


def ask(log: Log, partition: str = "0", at: int | None = None) -> Answer:
    return why(World(), log.entries, partition, at)


def seated(**options: object) -> Log:
    """`web-1` holds m1, the only seat; `web-2` stands by."""
    log = Log(make(members=["m1"], **options))
    log.sit(A, "m1", name="web-1")
    log.join(B, None, name="web-2")
    return log


def test_a_partition_that_nobody_ever_had() -> None:
    answer = ask(Log(make(members=["m1"])))
    assert answer.sentence == "Partition 0 belongs to nobody: nobody has claimed the seat of m1 yet."
    assert (answer.sequence, answer.instance, answer.changes) == (None, None, ())


def test_a_first_claim() -> None:
    answer = ask(seated())
    assert answer.sentence == (
        "Partition 0 came to m1 (web-1 a-0001) at 2023-11-14 22:13:20.0 UTC by record 3 (a claim): "
        "web-1 (a-0001) claimed the seat of m1. It went on at position 0."
    )
    assert (answer.member, answer.name, answer.instance, answer.sequence) == ("m1", "web-1", A, 3)


def test_a_failover_names_the_record_and_for_how_long_the_owner_was_silent() -> None:
    log = seated()
    log.report(A, "0", 12)
    log.run(2.25, B)
    nobody = ask(log)
    assert nobody.instance is None
    assert nobody.sentence == (
        "Partition 0 has belonged to nobody since 2023-11-14 22:13:22.2 UTC, when record 14 (a heartbeat) took it "
        "from m1 (web-1 a-0001): web-1 (a-0001) was stale, it had written nothing for 2.2 s (the limit is 2 s); "
        "nobody has claimed the seat of m1 yet."
    )
    log.later(0.3)
    claim = log.claim(B, "m1")
    answer = ask(log)
    assert (answer.instance, answer.sequence) == (B, claim)
    assert answer.sentence == (
        "Partition 0 went from m1 (web-1 a-0001) to m1 (web-2 b-0002) at 2023-11-14 22:13:22.5 UTC by record 15 "
        "(a claim): web-1 (a-0001) was stale, it had written nothing for 2.2 s (the limit is 2 s); nobody had it from "
        "record 14 on, for 0.3 s; web-2 (b-0002) claimed the seat of m1. It went on at position 12."
    )
    assert [(change.change, change.sequence) for change in answer.changes] == [
        ("gained", 3),
        ("lost", 14),
        ("gained", 15),
    ]


def test_at_a_time_before_a_failover_the_former_owner_is_told() -> None:
    log = seated()
    log.run(2.5, B)
    log.claim(B, "m1")
    assert ask(log).name == "web-2"
    assert ask(log, at=EPOCH + INTERVAL).name == "web-1"


def test_a_neighbour_saw_that_the_process_was_gone() -> None:
    log = seated()
    gone = log.write(B, "leave", gone=A)
    log.claim(B, "m1")
    answer = ask(log)
    assert "the process of web-1 (a-0001) was gone, as web-2 (b-0002) saw on the same machine" in answer.sentence
    assert f"nobody had it from record {gone} on" in answer.sentence


def test_who_leaves_in_order() -> None:
    log = seated()
    stepped = log.step_down("m1", sender=A)
    log.release(A, "0", "1")
    log.claim(B, "m1")
    assert (
        f"web-1 (a-0001) had drained it and released it, because web-1 (a-0001) is leaving (record {stepped})"
        in ask(log).sentence
    )


def test_a_step_down() -> None:
    log = seated()
    stepped = log.step_down("m1")
    assert (
        f"It is to move on: an administrator (admin) had web-1 (a-0001) step down (record {stepped})."
        in ask(log).sentence
    )
    log.release(A, "0", "1")
    log.claim(B, "m1")
    assert f"because an administrator (admin) had web-1 (a-0001) step down (record {stepped})" in ask(log).sentence


def test_a_pause_and_its_end() -> None:
    log = seated()
    paused = log.write("admin", "pause")
    log.release(A, "0", "1")
    answer = ask(log)
    assert answer.sentence.endswith(
        f"because an administrator (admin) paused the group (record {paused}); the group is paused, by record {paused}."
    )
    resumed = log.write("admin", "resume")
    assert (
        f"came back to m1 (web-1 a-0001) at 2023-11-14 22:13:20.0 UTC by record {resumed} (a resume)"
        in ask(log).sentence
    )


def test_a_pause_that_ends_by_itself() -> None:
    log = seated()
    log.write("admin", "pause", until=EPOCH + INTERVAL)
    log.release(A, "0", "1")
    log.run(1.0, A, B)
    assert "; the pause was over. It went on" in ask(log).sentence


def test_a_member_that_is_added_gets_a_share() -> None:
    log = seated()
    added = log.reconfigure(make(members=["m1", "m2"]))
    log.claim(B, "m2")
    log.release(A, "1")
    sentence = ask(log, "1").sentence
    assert "went from m1 (web-1 a-0001) to m2 (web-2 b-0002)" in sentence
    assert f"because an administrator (admin) added m2 (record {added}); web-2 (b-0002) held the seat of m2" in sentence


def test_better_priority_preempts() -> None:
    log = Log(make(members=["m1"]))
    log.sit(A, "m1", name="web-1", priority=5)
    log.join(B, "m1", name="web-2")
    log.run(4.5, A, B)
    claim = log.claim(B, "m1")
    log.release(A, "0", "1")
    assert f"because web-2 (b-0002) claimed the seat of m1 with better priority (record {claim})" in ask(log).sentence


def test_in_an_auto_group_partitions_are_spread_anew() -> None:
    log = Log(make(members=None))
    log.sit(A, None, name="web-1")
    claim = log.sit(B, None, name="web-2")
    log.release(A, "1")
    sentence = ask(log, "1").sentence
    assert "went from web-1 (a-0001) to web-2 (b-0002)" in sentence
    assert f"because web-2 (b-0002) took a seat, and the partitions were spread anew (record {claim})" in sentence
    log.run(2.25, B)
    sentence = ask(log, "0").sentence
    assert "web-1 (a-0001) was stale, it had written nothing for 2.2 s" in sentence
    assert "; what web-1 (a-0001) had was spread over the others." in sentence


def test_an_owner_that_was_stale_and_returns() -> None:
    log = Log(make(members=["m1"]))
    log.sit(A, "m1", name="web-1")
    log.run(2.5)
    log.beat(A)
    sentence = ask(log).sentence
    assert "came back to m1 (web-1 a-0001)" in sentence
    assert sentence.endswith(
        "web-1 (a-0001) wrote again, and the seat of m1 was still its own. It went on at position 0."
    )


def test_an_owner_whose_own_record_tells_that_it_was_stale() -> None:
    log = Log(make(members=["m1"]))
    log.sit(A, "m1", name="web-1")
    log.run(1.9)
    log.later(0.4)
    log.beat(A)
    sentence = ask(log).sentence
    assert "web-1 (a-0001) was stale, it had written nothing for 2.4 s" in sentence
    assert "web-1 (a-0001) wrote again" in sentence


def test_a_reset_is_told_after_the_owner() -> None:
    log = seated()
    reset = log.write("admin", "reset", positions={"0": 7})
    assert ask(log).sentence.endswith(
        f"Since then an administrator (admin) reset it to positions of choice, and it goes on at 7 (record {reset})."
    )
    assert "reset it" not in ask(log, "1").sentence


def test_a_partition_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UnknownName, match="no partition 9"):
        ask(seated(), "9")


def test_every_change_of_owner_is_among_the_changes() -> None:
    """Whoever owns a partition after a record came to it by a `gained` of that owner and epoch, or by a reset."""
    log = seated()
    log.run(2.5, B)
    log.claim(B, "m1")
    log.write("admin", "pause")
    log.release(B, "0", "1")
    log.write("admin", "resume")
    log.write("admin", "reset", positions={"0": 3})
    log.sit(C, None, name="web-3")
    told = changes(World(), log.entries)
    owner: dict[str, tuple[str | None, int]] = {}
    for change in told:
        if change.change == "gained":
            assert owner.get(change.partition, (None, 0))[0] is None, "gained while somebody had it"
            owner[change.partition] = (change.instance, change.epoch)
        elif change.change == "lost":
            assert owner[change.partition] == (change.instance, change.epoch)
            owner[change.partition] = (None, 0)
        elif change.change == "reset":
            owner[change.partition] = (change.instance, change.epoch)
    assert owner == {p.name: (p.owner, p.epoch) for p in log.world.partitions.values()}
