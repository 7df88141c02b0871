"""The invariants of the end of a schedule, when the faults have stopped."""

from echelon.group.fold import fold
from echelon.group.newcomer import world_of
from echelon.group.records import Snapshot
from echelon.group.world import World, load
from echelon.testing.simulate.checks import Checks


def check_recovery(checks: Checks) -> None:
    """The faults have stopped long enough ago: everything is owned, runs, and is up to date.

    Raises Violation.
    """
    for partition in checks.world.partitions.values():
        process = checks.schedule.processes.get(partition.owner or "")
        run = process.own.runs.get(partition.name) if process is not None and process.up else None
        for_cut = checks.world.config is not None and checks.world.config.cut_every is not None
        if run is None or run.epoch != partition.epoch or (run.state != "running" and not for_cut):
            checks.fail(f"partition {partition.name} is not processed, though the faults have stopped")
        elif partition.position < checks.schedule.end(partition.name):
            checks.fail(f"partition {partition.name} is stuck at {partition.position}")


def check_agreement(checks: Checks) -> None:
    """All who have read everything have equal worlds, from whatever snapshot they began.

    Raises Violation.
    """
    log = checks.schedule.log
    for process in checks.schedule.processes.values():
        if process.up and process.last_entry == log.archive[-1] and process.world != checks.world:
            checks.fail(f"the world of {process.id} differs from the reference: {_differ(process.world, checks.world)}")
    newcomer = world_of(log.held(), from_start=log.first == 0)
    if newcomer != checks.world:
        checks.fail(f"a newcomer's world differs from the reference: {_differ(newcomer, checks.world)}")
    for index, entry in enumerate(log.archive):
        record = log.records[entry.sequence]
        if isinstance(record, Snapshot) and not checks.lost_tail and _counts(checks, record):
            place = log.index_after(record.as_of)
            if fold(log.archive[place:], load(record.world)) != checks.world:
                checks.fail(f"the snapshot at {log.archive[index].sequence} plus the tail is not the whole fold")


def _counts(checks: Checks, record: Snapshot) -> bool:
    named = checks.schedule.log.records.get(record.as_of)
    return named is not None and (named.sender, named.counter) == (record.as_of_sender, record.as_of_counter)


def _differ(one: World | None, other: World) -> str:
    """The first field in which two worlds differ."""
    if one is None:
        return "there is none"
    for name in World.__struct_fields__:
        if getattr(one, name) != getattr(other, name):
            return f"{name}: {getattr(one, name)} and {getattr(other, name)}"
    return "not at all"
