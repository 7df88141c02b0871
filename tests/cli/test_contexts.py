"""Named connections: kept in a file for the owner's eyes only, found by name, by default, by environment."""

import json
from pathlib import Path

import pytest

from tests.cli.place import Place, invoke


def test_a_context_is_added_used_and_forgotten(place: Place, quiet: str, tmp_path: Path) -> None:
    invoke("context", "add", "here", place.url)
    invoke("context", "add", "prod", "nats://me:secret@nats.example.com", "--option", "password=secret")
    file = tmp_path / "config/echelon/config.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    listed = invoke("context", "ls", "-o", "json").out
    assert "secret" not in listed
    assert [(row["context"], row["default"], row["url"]) for row in json.loads(listed)] == [
        ("here", True, place.url),
        ("prod", False, "nats://nats.example.com"),
    ]
    assert invoke("context", "ls").out.splitlines()[1].split() == ["here", "yes", place.url, "-"]
    assert quiet in invoke("ls", "--names").out
    assert quiet in invoke("ls", "--names", "--context", "here").out
    invoke("context", "use", "prod")
    assert [row["default"] for row in json.loads(invoke("context", "ls", "-o", "json").out)] == [False, True]
    invoke("context", "rm", "prod")
    assert "Did you mean here?" in invoke("ls", "--context", "hare", code=3).err
    assert "there is no context" in invoke("ls", "--context", "", code=3).err
    invoke("ls", code=2)


def test_the_environment_names_a_broker(place: Place, quiet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_URL", place.url)
    assert quiet in invoke("ls", "--names").out
    invoke("context", "add", "dead", "nats://127.0.0.1:1")
    assert quiet in invoke("ls", "--names").out
    invoke("ls", "--context", "dead", code=5)
    monkeypatch.delenv("ECHELON_URL")
    monkeypatch.setenv("ECHELON_CONTEXT", "dead")
    invoke("ls", code=5)


@pytest.mark.parametrize("text", ["contexts = 3", "[contexts.a]\nport = 3\n[contexts.b", "[contexts]\nhere = 3"])
def test_a_file_that_is_broken_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config/echelon/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert str(file) in invoke("ls", code=2).err


def test_what_is_no_context_is_told(tmp_path: Path) -> None:
    assert "no URL" in invoke("context", "add", "here", "localhost", code=2).err
    assert "no option" in invoke("context", "add", "here", "nats://localhost", "--option", "creds", code=2).err
    (tmp_path / "config/echelon").mkdir(parents=True)
    (tmp_path / "config/echelon/config.toml").write_text('[contexts.here]\ncreds = "x"\n')
    assert "has no url" in invoke("ls", "--context", "here", code=2).err
    invoke("context", "rm", "here")
    invoke("context", "rm", "here", code=3)


def test_no_secret_is_shown() -> None:
    names = ("password", "key_password", "kafka.ssl.key.pem", "kafka.sasl.oauthbearer.client.secret", "token")
    options = [word for name in names for word in ("--option", f"{name}=hush")]
    invoke("context", "add", "here", "kafka://localhost", *options, "--option", "kafka.client.id=me")
    for form in ("table", "json", "csv"):
        listed = invoke("context", "ls", "-o", form).out
        assert "hush" not in listed
        assert "me" in listed
