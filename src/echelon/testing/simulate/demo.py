"""One failover, told in words: what `make demo` shows until the pipeline is there."""

from echelon.group.advisories import Advisory, PartitionMoved, SeatLost, SeatTaken, Watch
from echelon.group.config import Config, Stream
from echelon.group.records import Profile
from echelon.model import Entry
from echelon.testing.simulate.ending import check_agreement, check_recovery
from echelon.testing.simulate.plan import INTERVAL, TURMOIL, Plan
from echelon.testing.simulate.schedule import Schedule


def show() -> int:
    """Run two members with a stand-by each, end one, and tell what the group does about it."""
    names = [str(number) for number in range(6)]
    config = Config(
        streams=(Stream("sensors", len(names)),),
        positions=dict.fromkeys(names, 0),
        members=("m1", "m2"),
        interval=INTERVAL / 1000,
    )
    schedule = Schedule(7, plan=Plan(config=config, faults=("crash",)))
    watch = Watch(schedule.checks.world)
    check = schedule.checks.stored

    def stored(entry: Entry) -> None:
        check(entry)
        for advisory in watch.look(schedule.checks.world):
            told = _tell(advisory)
            if told:
                print(f"{schedule.now / INTERVAL:7.2f}  {told}")

    schedule.log.on_stored = stored
    schedule.make_group()
    for name, member in (("anna", "m1"), ("bela", "m2"), ("carl", "m1"), ("dora", "m2")):
        schedule.launch(name, Profile(name, member))
    schedule.run_until(6 * INTERVAL)
    world = schedule.checks.world
    holder = world.seats["m1"].holder or ""
    print(f"{schedule.now / INTERVAL:7.2f}  {holder}'s process is killed")
    schedule.processes[holder].end()
    schedule.run_until(TURMOIL + 4 * INTERVAL)
    check_recovery(schedule.checks)
    check_agreement(schedule.checks)
    print("\npartition  owner  position  end")
    for partition in world.partitions.values():
        end = schedule.end(partition.name)
        print(f"{partition.name:>9}  {partition.owner:<5}  {partition.position:>8}  {end:>3}")
    print("\nTimes are in intervals of the group. Nothing was lost, and nobody processed a partition beside another.")
    print("This was the simulator. Still missing for the real demo: the pipeline on Spark.")
    return 0


def _tell(advisory: Advisory) -> str | None:
    match advisory:
        case SeatTaken(member=member, instance=instance):
            return f"{instance} takes the seat of {member}"
        case SeatLost(member=member, instance=instance, reason=reason):
            return f"{instance} loses the seat of {member} ({reason})"
        case PartitionMoved(partition=partition, from_instance=before, to_instance=after, position=position):
            return f"partition {partition} moves from {before} to {after}, which goes on at {position}"
    return None
