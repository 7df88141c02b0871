"""Every command that reads takes `-o table|json|csv`, and shows the same in each form."""

from collections.abc import Iterator
from typing import Final

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from echelon.cli.app import app
from tests.cli.failing import failing
from tests.cli.place import Place, invoke

_READING: Final = {
    "ls": "",
    "info": "CREW",
    "members": "CREW",
    "partitions": "CREW",
    "lag": "CREW",
    "top": "CREW --count 1",
    "reset": "CREW --to-earliest",
    "events": "CREW",
    "history": "CREW",
    "why": "CREW 0",
    "cut take": "DEAD",
    "cut list": "DEAD",
    "cut show": "DEAD CUT",
    "parked list": "PARKED",
    "dead list": "DEAD",
    "local status": "",
    "context ls": "",
}
"""Commands, each with the words that follow."""
_ELSEWHERE: Final = {"create", "join", "audit"}
"""Those that other tests try in each form: of groups, of joining, of audits."""
_DOING: Final = {
    "rm", "delete", "step-down", "sd", "pause", "resume", "run", "demo", "member add", "member drop", "map set",
    "map clear", "cut retire", "parked retry", "parked skip", "dead retry", "dead skip", "local up", "local down",
    "context add", "context use", "context rm",
}  # fmt: skip
"""Those that only do something."""


def commands(family: TyperGroup, *before: str) -> Iterator[tuple[str, TyperCommand]]:
    """All commands, as they are written."""
    for name, command in family.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *before, name)
        else:
            assert isinstance(command, TyperCommand)
            yield " ".join((*before, name)), command


def test_a_command_that_reads_has_a_form_for_programs_and_is_tried_in_each_form() -> None:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    found = dict(commands(root))
    formed = {name for name, command in found.items() if any("-o" in option.opts for option in command.params)}
    assert found.keys() - formed == _DOING
    assert formed == _READING.keys() | _ELSEWHERE | {"list"}


@pytest.fixture(scope="module")
def given_up(place: Place) -> dict[str, str]:
    """A group with parked keys, and one with dead letters."""
    found = {"PARKED": failing(place, "park", times=100), "DEAD": failing(place, "dead_letter", times=100)}
    place.until(lambda: all(len(place.rows(name.lower(), "list", group)) == 2 for name, group in found.items()))
    return found


@pytest.mark.parametrize("command", _READING)
def test_it_shows_the_same_in_each_form(place: Place, crew: str, given_up: dict[str, str], command: str) -> None:
    invoke("context", "add", "here", place.url)
    meant = {**given_up, "CREW": crew}
    if command.startswith("cut "):
        meant["CUT"] = str(place.rows("cut", "take", given_up["DEAD"])[0]["cut"])
    words = [*command.split(), *(meant.get(word, word) for word in _READING[command].split())]
    assert place.shown(*words, anew=command == "cut take")
