"""Files that users write themselves: the file of contexts, and positions to go to."""

import json
from pathlib import Path

import pytest

from echelon.cli.reset import read_positions
from echelon.errors import InvalidConfig
from tests.cli.place import invoke


def written(folder: Path, text: str) -> Path:
    """The file of contexts, with that in it."""
    file = folder / "config/echelon/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_folder_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    failed = invoke("context", "add", "here", "nats://localhost", code=2).err
    assert "/proc/nowhere/echelon/config.toml cannot be written" in failed


def test_a_default_that_is_no_name_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, "default = 5")
    assert f"in {file} the default is no name" in invoke("ls", code=2).err


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("when = 2026-01-01", "when"),
        ("[contexts.prod.nested]\ny = 1", "nested"),
        ("much = inf", "much"),
        ('odd = "a\\u007Fb"', "odd"),
        ('[colours]\nred = "no"', "colours"),
    ],
)
def test_what_would_be_lost_or_spoiled_is_told_and_the_file_stays(tmp_path: Path, line: str, named: str) -> None:
    file = written(tmp_path, text := f'[contexts.prod]\nurl = "nats://127.0.0.1:1"\n{line}\n')
    for words in (("use", "prod"), ("add", "b", "nats://b")):
        assert f"{file} cannot keep '{named}'" in invoke("context", *words, code=2).err
        assert file.read_text(encoding="utf-8") == text
    assert [each.name for each in file.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("name", "option"), [("a\x7fb", "timeout=1"), ("a", "creds=\udc80"), ("a", "\udc80=1"), ("a\udc80", "timeout=1")]
)
def test_words_that_no_file_can_hold_are_told_and_none_is_written(tmp_path: Path, name: str, option: str) -> None:
    invoke("context", "add", name, "nats://a", "--option", option, code=2)
    assert not (tmp_path / "config").exists()


def test_all_that_a_context_may_have_is_kept(tmp_path: Path) -> None:
    file = written(tmp_path, '[contexts."a.b"]\nurl = "nats://ä"\ntls = true\ntimeout = 2.5\n"kafka.list" = [1, 2]\n')
    invoke("context", "add", "c d", "kafka://c:1", "--option", 'password=q"\\\n')
    invoke("context", "use", "a.b")
    rows = {row["context"]: row for row in json.loads(invoke("context", "ls", "-o", "json").out)}
    assert rows["a.b"]["options"] == {"tls": True, "timeout": 2.5, "kafka.list": [1, 2]}
    assert (rows["a.b"]["url"], rows["a.b"]["default"], rows["c d"]["default"]) == ("nats://ä", True, False)
    assert 'q\\"\\\\\\n' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", ['{"0": 17, "1": 4}', "\ufeffpartition,position\n0,17\n1,4\n", '\ufeff{"0": 17, "1": 4.0}']
)
def test_positions_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    assert read_positions(tmp_path / "file") == {"0": 17, "1": 4}


@pytest.mark.parametrize(
    "text",
    [
        '{"0": 1e999}',
        '{"0": NaN}',
        '{"0": 7.9}',
        '{"0": true}',
        "partition,position\n0,7.9\n",
        "partition,position\n0\n",
        f"partition,position\n0,{'7' * 140_000}\n",
        "[" * 100_000,
        "[1]",
    ],
    ids=str.__len__,
)
def test_what_is_no_position_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InvalidConfig, match="holds no positions"):
        read_positions(tmp_path / "file")
