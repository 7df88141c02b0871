"""How to reach a NATS system: from its URL, options and the environment to what nats-py's client takes.

An option wins over the URL, the URL over the environment (`ECHELON_NATS_` and the option's name in capitals).
Nothing here is ever logged.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from echelon.errors import InvalidConfig

_ENVIRONMENT: Final = "ECHELON_NATS_"
_FILES: Final = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")
_OPTIONS: Final = (*_FILES, "user", "password", "token", "domain", "api_prefix", "inbox_prefix", "timeout")


class Settings:
    """What every connection of one broker is made with.

    `place` may be shown; `arguments` hold credentials and may not. `prefix` is that of the JetStream API,
    `timeout` how long, in seconds, a request may take until the server counts as unreachable. With
    `needs_tls`, nothing is sent to a server that does not speak TLS.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        unknown = [name for name in options if name not in _OPTIONS]
        if unknown:
            raise InvalidConfig(f"'{unknown[0]}' is no option of a NATS broker", remedy=f"Use {', '.join(_OPTIONS)}")
        scheme, credentials, hosts = _parse(url)
        values = {name: value for name in _OPTIONS if (value := os.environ.get(_ENVIRONMENT + name.upper()))}
        values |= credentials
        values |= {name: str(value) for name, value in options.items() if value is not None}
        for name in _FILES:
            if name in values and not Path(values[name]).is_file():
                raise InvalidConfig(f"the option {name} names the file {values[name]}, which is not there")
        _check_secrets(values)
        self.place = ",".join(hosts)
        self.timeout = _seconds(values.get("timeout", "5"))
        self.needs_tls = scheme == "tls" or any(name.startswith("tls_") for name in values)
        self.prefix = _api_prefix(values)
        self.arguments: dict[str, Any] = {
            "servers": [f"{scheme}://{host}" for host in hosts],
            "user": values.get("user"),
            "password": values.get("password"),
            "token": values.get("token"),
            "user_credentials": values.get("creds"),
            "nkeys_seed": values.get("nkey"),
        }
        if "inbox_prefix" in values:
            self.arguments["inbox_prefix"] = values["inbox_prefix"]
        if self.needs_tls:
            self.arguments["tls"] = _tls(values)


def _parse(url: str) -> tuple[str, dict[str, str], list[str]]:
    """Scheme, credentials and `host:port` of each server. Errors do not repeat the URL, which may hold a password."""
    scheme = url.partition("://")[0]
    credentials: dict[str, str] = {}
    hosts = []
    for part in url.split(","):
        place = part.removeprefix(f"{scheme}://").partition("/")[0]
        login, _, host = place.rpartition("@")
        user, has_password, password = login.partition(":")
        if login and not credentials:
            given = {"user": unquote(user), "password": unquote(password)}
            credentials = given if has_password else {"token": unquote(user)}
        name, _, port = host.rpartition(":") if host[-1:] != "]" and ":" in host else (host, "", "4222")
        if scheme not in {"nats", "tls"} or not port.isdecimal() or not _is_place(f"{name}:{port}"):
            raise InvalidConfig(
                "that is no NATS URL",
                remedy="Write nats://host:port, with tls:// if TLS is a must, with user:password@ or token@ before "
                "the host, and with commas between several hosts",
            )
        hosts.append(f"{name}:{port}")
    return scheme, credentials, hosts


def _is_place(host: str) -> bool:
    """Whether nats-py can take it for a host and a port."""
    try:
        found = urlsplit(f"nats://{host}")
        return bool(found.hostname and found.port)
    except ValueError:
        return False


def _check_secrets(values: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a file holds no credentials: nats-py would not say so, or never return."""
    if "creds" in values:
        text = _text(values, "creds")
        if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
            raise InvalidConfig(f"{values['creds']} is no credentials file", remedy="Make one with: nsc generate creds")
    if "nkey" in values:
        seed = _text(values, "nkey").strip()
        if not seed.startswith("SU") or len(seed) != 58:
            raise InvalidConfig(
                f"{values['nkey']} holds no seed of a user's nkey", remedy="Make one with: nk -gen user"
            )


def _text(values: Mapping[str, str], option: str) -> str:
    try:
        return Path(values[option]).read_text()
    except (OSError, ValueError):  # What is wrong may quote what is in it.
        raise InvalidConfig(f"the option {option} names the file {values[option]}, which cannot be read") from None


def _api_prefix(values: Mapping[str, str]) -> str:
    if "domain" in values and "api_prefix" in values:
        raise InvalidConfig("both a JetStream domain and an API prefix are given", remedy="Give one of them")
    return values.get("api_prefix", "").rstrip(".") or (
        f"$JS.{values['domain']}.API" if "domain" in values else "$JS.API"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise InvalidConfig(f"the timeout of a NATS broker is '{text}'", remedy="Give 0.1 to 3600 seconds")
    return seconds


def _tls(values: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=values.get("tls_ca"))
        if "tls_cert" in values:
            context.load_cert_chain(values["tls_cert"], values.get("tls_key"))
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfig(f"the certificates or the key cannot be used: {error}") from None
    return context
