"""The pages name everything that there is, and nothing that there is not."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from echelon.cli.app import app
from echelon.cli.exits import exit_code
from echelon.errors import EchelonError
from echelon.group import records
from echelon.group.advisories import Advisory
from echelon.group.config import Config
from echelon.members.counters import Counters
from echelon.spark import options
from echelon.spark.pipeline import Pipeline
from echelon.spark.source import COLUMNS
from tests.docs.stage import ROOT

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/*.md")]
)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def anchors(text: str) -> set[str]:
    """What headings can be linked by, as GitHub makes it of them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def missing(names: set[str], text: str) -> list[str]:
    """The names that the text does not have as code."""
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    return sorted(name for name in names if not re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", code))


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (file.parent / path).resolve() if path else file
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_python_on_a_page_can_be_compiled_and_its_imports_are_there(file: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```$", file.read_text(), re.MULTILINE | re.DOTALL):
        imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
        for node in imports:
            module = __import__(node.module or "", fromlist=[name.name for name in node.names])
            assert all(hasattr(module, name.name) for name in node.names), node.module


@pytest.mark.parametrize("example", ["first_member.py", "spark_to_delta.py"])
def test_the_readme_shows_examples_as_they_are(example: str) -> None:
    code = (ROOT / "examples" / example).read_text().split('"""', 2)[2].strip()
    assert f"```python\n{code}\n```" in (ROOT / "README.md").read_text()


def test_the_index_has_every_page() -> None:
    names = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert all(name in page("README.md") for name in names)


def test_the_api_is_up_to_date() -> None:
    made = "import sys; sys.path.insert(0, 'docs'); import make_api; sys.stdout.write(make_api.make_api())"
    text = subprocess.run([sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert page("api.md") == text, "Run: python docs/make_api.py"


def test_the_protocol_has_every_record_and_every_field() -> None:
    kinds = [kind for kind in vars(records).values() if getattr(kind, "__module__", "") == records.__name__]
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    fields = {name for kind in structs for name in kind.__struct_fields__}
    tags = {str(kind.__struct_config__.tag) for kind in structs if kind not in (records.Record, records.Admitted)}
    tags -= {"None"}
    assert {"configure", "heartbeat", "snapshot"} <= tags
    assert missing(fields | tags, page("protocol.md")) == []


def test_every_setting_of_a_group_is_explained() -> None:
    assert missing(set(Config.__struct_fields__), page("groups.md")) == []


def test_everything_that_a_pipeline_declares_and_every_option_and_column_of_the_source_is_named() -> None:
    declared = set(Pipeline.__struct_fields__) - {"function"}
    columns = set(re.findall(r"(?:^|, )(\w+) ", COLUMNS))
    assert missing(declared | set(options._NAMES) | columns, page("spark.md")) == []


def test_every_counter_and_every_advisory_is_explained() -> None:
    kinds = {str(kind.__struct_config__.tag) for kind in Advisory.__subclasses__()}
    assert missing(set(Counters.__struct_fields__) | kinds, page("operating.md")) == []


def test_every_command_is_listed() -> None:
    commands = {str(command.name) for command in app.registered_commands if not command.hidden}
    families = {str(family.name) for family in app.registered_groups}
    assert missing(commands | families, page("commands.md")) == []


def test_every_exit_code_is_listed() -> None:
    def kinds(kind: type[EchelonError]) -> list[type[EchelonError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in kinds(child))]

    codes = {str(exit_code(kind.__new__(kind))) for kind in kinds(EchelonError)}
    assert codes <= set(re.findall(r"^\| (\d+) \|", page("commands.md"), re.MULTILINE))
