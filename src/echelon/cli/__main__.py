"""Lets `python -m echelon.cli` stand for the `echelon` command."""

from echelon.cli import main

main()
