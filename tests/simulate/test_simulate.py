"""The protocol under random schedules, and the simulator under deliberate breakages of it."""

import json
import subprocess
import sys
from random import Random

import pytest

from echelon.testing.simulate import Schedule
from echelon.testing.simulate.breaks import BREAKS, broken
from echelon.testing.simulate.plan import ADMINISTRATION, FAULTS, REQUEST_FAULTS, Plan, draw

SCHEDULES = 600
ENOUGH = 4000
"""A breakage that so many schedules do not catch is not caught."""
CAUGHT = {"sink-without-fence": [1835], "count-repeated": [654], "cut-guesses-sink": [286]}
"""Seeds that are tried first: whose schedules caught what is caught rarely, when that was last searched for."""


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "echelon.testing.simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def test_no_schedule_violates_an_invariant_and_every_fault_and_administration_occurs() -> None:
    occurred: set[str] = set()
    memberships: set[tuple[str, str, str]] = set()
    for seed in range(SCHEDULES):
        schedule = Schedule(seed)
        outcome = schedule.run()
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        config = schedule.plan.config
        occurred |= {*schedule.plan.faults, *schedule.plan.administration}
        memberships.add((config.membership, config.assignment, config.delivery))
    assert occurred == {*FAULTS, *ADMINISTRATION}
    deliveries = ("at_most_once", "at_least_once", "exactly_once")
    kinds = (("listed", "sticky"), ("listed", "blocks"), ("auto", "sticky"), ("auto", "blocks"), ("mapped", "mapped"))
    assert memberships == {(*kind, delivery) for kind in kinds for delivery in deliveries}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_caught(name: str) -> None:
    with broken(name):
        outcomes = (Schedule(seed).run() for seed in (*CAUGHT.get(name, ()), *range(ENOUGH)))
        caught = next((outcome for outcome in outcomes if outcome.violation is not None), None)
        assert caught is not None, f"{ENOUGH} schedules did not catch that '{BREAKS[name].rule}' is broken"
        again = Schedule(caught.seed, tracing=True).run()
    assert again.violation == caught.violation
    assert again.events == caught.events
    assert Schedule(caught.seed).run().violation is None, "the breakage was not undone"


def test_a_fault_that_nobody_can_cause_is_noticed() -> None:
    assert {*REQUEST_FAULTS} < {*FAULTS}
    config = draw(Random(1)).config
    with pytest.raises(AttributeError, match="crahs"):
        Schedule(1, plan=Plan(config=config, faults=("crahs",))).run()


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, second = (Schedule(17, tracing=True).run() for _ in range(2))
    assert first == second
    assert len(first.trace) > 100
    assert first.trace != Schedule(18, tracing=True).run().trace


def test_the_command_ends_with_a_line_of_json() -> None:
    done = run_command("--schedules", "60", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["schedules"] == 60
    assert result["violations"] == 0
    assert result["events"] > 60 * 200
    assert result["schedules_per_second"] > 0


def test_the_command_shows_a_counterexample_of_a_broken_rule() -> None:
    done = run_command("--schedules", "100", "--json", "--break", "start-at-once")
    assert done.returncode == 1
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["violations"] > 0
    assert f"--seed {result['seed']} --break start-at-once" in done.stdout
    assert "at the same time" in done.stdout
    shown = run_command("--seed", str(result["seed"]), "--break", "start-at-once")
    assert shown.returncode == 1
    assert "at the same time" in shown.stdout


def test_the_command_lists_the_breakages() -> None:
    done = run_command("--list-breaks")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(BREAKS)


def test_the_demo_tells_of_a_failover() -> None:
    done = run_command("--demo")
    assert done.returncode == 0, done.stderr
    assert "loses the seat of m1 (timeout)" in done.stdout
    assert "Nothing was lost" in done.stdout
