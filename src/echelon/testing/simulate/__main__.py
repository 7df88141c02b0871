"""Run the simulator: `python -m echelon.testing.simulate --schedules 2000 --json`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import Final

from echelon.testing.simulate.breaks import BREAKS, broken
from echelon.testing.simulate.demo import show
from echelon.testing.simulate.schedule import Outcome, Schedule

CHUNK: Final = 50


def main() -> int:
    """Run what the command line asks for. Exit code 1: an invariant was violated."""
    options = _options()
    if options.list_breaks:
        for name, found in BREAKS.items():
            print(f"{name:26} {found.rule}")
        return 0
    if options.demo:
        return show()
    if options.seed is not None:
        return _report_one(options.seed, options.break_name)
    began = time.monotonic()
    schedules = events = records = violations = 0
    worst: Outcome | None = None
    for outcome in _outcomes(options.first, options.schedules, options.break_name, options.jobs):
        schedules += 1
        events += outcome.events
        records += outcome.records
        if outcome.violation is not None:
            violations += 1
            if worst is None or outcome.events < worst.events:
                worst = outcome
        if schedules % 1000 == 0 and sys.stderr.isatty():
            print(f"{schedules} schedules, {violations} violations", file=sys.stderr)
    seconds = time.monotonic() - began
    if worst is not None:
        _explain(worst.seed, options.break_name)
    result = {
        "schedules": schedules,
        "events": events,
        "records": records,
        "violations": violations,
        "seconds": round(seconds, 2),
        "schedules_per_second": round(schedules / seconds, 1),
        "break": options.break_name,
        "seed": worst.seed if worst is not None else None,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{schedules} schedules, {events} events, {violations} violations, {schedules / seconds:.0f} schedules/s")
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m echelon.testing.simulate", description="Try to break the protocol."
    )
    parser.add_argument("--schedules", type=int, default=1000, metavar="N", help="how many schedules to run (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="seed of the first schedule (0)")
    parser.add_argument("--seed", type=int, help="run this one schedule and show what happens")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use (all cores)")
    parser.add_argument(
        "--break", dest="break_name", choices=list(BREAKS), metavar="NAME", help="break a rule on purpose"
    )
    parser.add_argument("--list-breaks", action="store_true", help="list the rules that can be broken")
    parser.add_argument("--demo", action="store_true", help="show one failover, in words")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


def _outcomes(first: int, schedules: int, break_name: str | None, jobs: int) -> Iterator[Outcome]:
    chunks = [
        (seed, min(CHUNK, first + schedules - seed), break_name) for seed in range(first, first + schedules, CHUNK)
    ]
    if jobs == 1:
        for chunk in chunks:
            yield from _run_chunk(chunk)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for outcomes in pool.map(_run_chunk, chunks):
            yield from outcomes


def _run_chunk(chunk: tuple[int, int, str | None]) -> list[Outcome]:
    first, count, break_name = chunk
    with broken(break_name) if break_name is not None else nullcontext():
        return [Schedule(seed).run() for seed in range(first, first + count)]


def _traced(seed: int, break_name: str | None) -> Outcome:
    with broken(break_name) if break_name is not None else nullcontext():
        return Schedule(seed, tracing=True).run()


def _report_one(seed: int, break_name: str | None) -> int:
    outcome = _traced(seed, break_name)
    print("\n".join(outcome.trace))
    print(f"\nseed {seed}: {outcome.violation or 'no violation'}, after {outcome.events} events")
    return 1 if outcome.violation else 0


def _explain(seed: int, break_name: str | None) -> None:
    """The shortest schedule that shows a violation, up to the violation; times are in intervals."""
    outcome = _traced(seed, break_name)
    print("\n".join(outcome.trace))
    again = f"python -m echelon.testing.simulate --seed {seed}" + (f" --break {break_name}" if break_name else "")
    print(f"\nVIOLATION after {outcome.events} events: {outcome.violation}")
    print(f"To see it again: {again}")


if __name__ == "__main__":
    sys.exit(main())
