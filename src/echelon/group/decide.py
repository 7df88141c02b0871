"""What an instance does next: from the world it has read, and its own clock, to actions. Pure.

An instance decides from what it has read back, never from what it has sent; the one exception is a release,
after which nothing more is processed under that epoch. The shell calls `decide` whenever something was read,
sent or finished, and at least eight times an interval; it performs the actions in order.
"""

from typing import Literal

from echelon.group import due, runs
from echelon.group.actions import Action, Exit, Halt, Send
from echelon.group.own import Own
from echelon.group.records import Join, Leave
from echelon.group.world import World


def decide(world: World, own: Own, now: int) -> list[Action]:
    """The actions of this instance in this world at this moment of its own clock."""
    if world.config is None:
        return []
    if world.deleted:
        return [*(Halt(name) for name, run in own.runs.items() if not runs.drained(run)), Exit("deleted")]
    exit_reason = _must_exit(world, own, now)
    if exit_reason is not None:
        return [Exit(exit_reason)]
    actions: list[Action] = []
    names = {partition.name: None for partition in world.owned(own.id)} | dict.fromkeys(own.runs)
    for name in names:
        action = runs.action(world, own, name, now)
        if action is not None:
            actions.append(action)
    actions.extend(Send(record) for record in due.records(world, own, now))
    return actions


def _must_exit(world: World, own: Own, now: int) -> Literal["left", "unread", "stuck"] | None:
    busy = [run for run in own.runs.values() if run.busy]
    if own.leaving and own.id not in world.instances and not own.runs and (Leave in own.asked or Join not in own.asked):
        return "left"
    if own.leaving and own.lease is not None and own.fenced(3 * world.interval, now) and not busy:
        return "left"  # It cannot say so; but by now it is stale to everybody else.
    if _writes_unread(own, world.interval, now):
        return "unread"
    drain_time = runs.drain_time(world)
    if any(run.state == "halted" and now - run.since > drain_time for run in busy):
        return "stuck"
    return None


def _writes_unread(own: Own, interval: int, now: int) -> bool:
    """Whether this instance can write but not read: for two intervals its records are stored, and none comes back."""
    if own.unread_since is None or own.acknowledged is None or now - own.acknowledged > interval:
        return False
    return own.fenced(3 * interval, now) and now - own.unread_since > 2 * interval
