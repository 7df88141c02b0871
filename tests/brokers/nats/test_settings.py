"""What a NATS connection is made with: from URL, options and environment, with clear errors and no secrets in them."""

from pathlib import Path

import pytest

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.settings import Settings
from echelon.errors import InvalidConfig

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "servers", "user", "password", "token"),
    [
        ("nats://a:1", ["nats://a:1"], None, None, None),
        ("nats://a", ["nats://a:4222"], None, None, None),
        ("nats://[::1]:5", ["nats://[::1]:5"], None, None, None),
        ("nats://[::1]", ["nats://[::1]:4222"], None, None, None),
        ("nats://a:1,b:2,c", ["nats://a:1", "nats://b:2", "nats://c:4222"], None, None, None),
        ("nats://a:1,nats://b:2", ["nats://a:1", "nats://b:2"], None, None, None),
        ("nats://u:p@a:1,b:2", ["nats://a:1", "nats://b:2"], "u", "p", None),
        ("nats://u:p%40%2C%3A@a:1", ["nats://a:1"], "u", "p@,:", None),
        ("nats://tok@a:1/", ["nats://a:1"], None, None, "tok"),
        ("tls://u:p@a", ["tls://a:4222"], "u", "p", None),
    ],
)
def test_urls(url: str, servers: list[str], user: str | None, password: str | None, token: str | None) -> None:
    settings = Settings(url, {})
    given = settings.arguments
    assert (given["servers"], given["user"], given["password"], given["token"]) == (servers, user, password, token)
    assert settings.place == ",".join(server.partition("://")[2] for server in servers)
    assert settings.needs_tls == url.startswith("tls")


@pytest.mark.parametrize(
    "url",
    [
        *("", "nats://", "http://a:1", "a:1", f"nats://u:{SECRET}@a:b", f"nats://u:{SECRET}@", "nats://a:1,,b:2"),
        *("nats://a:99999", "nats://a:0", "nats://[::1", "nats://[::1:4222", "nats://::1]:4222", "nats://::1"),
    ],
)
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig, match="no NATS URL") as caught:
        NatsBroker(url)
    assert SECRET not in str(caught.value)


def test_an_option_wins_over_the_url_and_the_url_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_NATS_USER", "environment")
    monkeypatch.setenv("ECHELON_NATS_PASSWORD", SECRET)
    monkeypatch.setenv("ECHELON_NATS_TIMEOUT", "7")
    assert Settings("nats://a", {}).arguments["user"] == "environment"
    assert Settings("nats://a", {}).timeout == 7
    assert Settings("nats://url:x@a", {}).arguments["user"] == "url"
    assert Settings("nats://url:x@a", {"user": "option"}).arguments["user"] == "option"
    assert Settings("nats://a", {"timeout": 2.5}).timeout == 2.5


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({}, "$JS.API"),
        ({"domain": "hub"}, "$JS.hub.API"),
        ({"api_prefix": "JS.other"}, "JS.other"),
        ({"api_prefix": "JS.other."}, "JS.other"),
    ],
)
def test_where_the_api_is(options: dict[str, object], prefix: str) -> None:
    assert Settings("nats://a", options).prefix == prefix


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"usr": "x"}, "'usr' is no option"),
        ({"domain": "a", "api_prefix": "b"}, "both a JetStream domain and an API prefix"),
        *(
            ({"timeout": text}, f"timeout of a NATS broker is '{text}'")
            for text in ("soon", 0, 0.05, 3601, "nan", "inf")
        ),
        ({"creds": "/nowhere/user.creds"}, "names the file /nowhere/user.creds"),
        ({"tls_ca": "/nowhere/ca.pem"}, "names the file /nowhere/ca.pem"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        NatsBroker("nats://a", **options)


@pytest.mark.parametrize("option", ["creds", "nkey"])
def test_files_that_cannot_be_read(tmp_path: Path, option: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xd8\xff")
    with pytest.raises(InvalidConfig, match=f"the option {option} names the file {file}, which cannot be read"):
        NatsBroker("nats://a", **{option: file})


@pytest.mark.parametrize(
    ("option", "words"), [("creds", "is no credentials file"), ("nkey", "no seed"), ("tls_ca", "cannot be used")]
)
def test_files_that_do_not_hold_what_they_should(tmp_path: Path, option: str, words: str) -> None:
    file = tmp_path / "file"
    file.write_text(SECRET)
    with pytest.raises(InvalidConfig, match=words) as caught:
        NatsBroker("nats://a", **{option: file})
    assert SECRET not in str(caught.value)
