"""Runs every benchmark of this folder, one after the other; fails if one is below its target or does not end well."""

import subprocess
import sys
from pathlib import Path

import msgspec

from report import Row, table

FOLDER = Path(__file__).parent
# Run by others.
PARTS = (
    "pcg_member.py",
    "read_kafka.py",
    "read_nats.py",
    "reading.py",
    "report.py",
    "run_all.py",
    "spark_failover.py",
)


def main() -> int:
    """Print a table of all rows, then those below target and the benchmarks that failed. Returns the exit status."""
    rows: list[Row] = []
    failed: list[str] = []
    for script in sorted(FOLDER.glob("*.py")):
        if script.name in PARTS:
            continue
        print(f"running {script.name} ...", file=sys.stderr)
        done = subprocess.run([sys.executable, script, "--json"], stdout=subprocess.PIPE, text=True, check=False)
        try:
            rows += msgspec.json.decode(done.stdout.splitlines()[-1] if done.stdout else "", type=list[Row])
        except msgspec.DecodeError:
            failed.append(f"{script.name} ended with status {done.returncode} and without a JSON line")
        else:
            if done.returncode:
                failed.append(f"{script.name} ended with status {done.returncode}")
    print(table(rows))
    below = [row for row in rows if not row.is_good]
    print(f"\nbelow target: {len(below)} of {len(rows)}")
    for row in below:
        print(f"  {row.name}: ratio {row.ratio:.2f}, target {row.target:.2f}")
    for failure in failed:
        print(f"  {failure}")
    return 1 if below or failed else 0


if __name__ == "__main__":
    sys.exit(main())
