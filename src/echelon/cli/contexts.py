"""Named connections, kept in `echelon/config.toml` under the user's configuration folder (XDG).

```toml
default = "prod"

[contexts.prod]
url = "nats://nats.example.com:4222"
creds = "/etc/nats/echelon.creds"
```

Besides `url` a context has the options of its broker.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from echelon.errors import InvalidConfig, UnknownName

_SECRET: Final = ("password", "token", "secret", ".pem", "jaas", "sasl.oauthbearer.config")
"""Words in the names of options, librdkafka's too, of which the values are not shown."""


def config_file() -> Path:
    """Where the contexts are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "echelon" / "config.toml"


class Contexts:
    """All contexts, as the file has them. Nothing is kept until `save`."""

    def __init__(self) -> None:
        import tomllib

        file = config_file()
        try:
            found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as error:
            raise InvalidConfig(f"{file} cannot be read: {error}", remedy="Mend it, or delete it") from error
        self.default: str | None = found.pop("default", None)
        self.all: dict[str, dict[str, object]] = found.pop("contexts", {})
        self._others = list(found)
        if not isinstance(self.default, str | None):
            raise InvalidConfig(f"in {file} the default is no name", remedy='Write: default = "name"')
        if not isinstance(self.all, dict) or not all(isinstance(each, dict) for each in self.all.values()):
            raise InvalidConfig(f"in {file} contexts are not tables", remedy='Write: [contexts.name] and url = "..."')

    def check(self, name: str) -> None:
        """Raise UnknownName, with the names that look alike, unless there is such a context."""
        if name not in self.all:
            from echelon.ops.listing import suggestion

            raise UnknownName(f"there is no context {name}", remedy=suggestion(name, list(self.all), "context ls"))

    def find(self, name: str) -> tuple[str, dict[str, object]]:
        """The URL and the options of a context. Raises UnknownName, and InvalidConfig if it has no URL."""
        self.check(name)
        options = dict(self.all[name])
        url = options.pop("url", None)
        if not isinstance(url, str):
            raise InvalidConfig(f"the context {name} has no url", remedy=f"Give it one in {config_file()}")
        return url, options

    def save(self) -> None:
        """Write the file, for its owner's eyes only: it may hold passwords. Comments in it are lost.

        Raises InvalidConfig, and writes nothing, if there is anything that it could not keep.
        """
        file = config_file()
        lines = [_line("default", self.default), ""] if self.default is not None else []
        lost = self._others[:1]
        for name, options in sorted(self.all.items()):
            written = {key: _line(key, value) for key, value in options.items()}
            lost += [key for key, line in {name: _line(name, ""), **written}.items() if not line]
            lines += [f"[contexts.{_quote(name)}]", *written.values(), ""]
        if lost:
            raise InvalidConfig(
                f"{file} cannot keep '{lost[0]}' if it is written anew", remedy="Change it with an editor instead"
            )
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".new")
            opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(opened, "w", encoding="utf-8") as text:
                text.write("\n".join(lines))
            new.replace(file)
        except OSError as error:
            raise InvalidConfig(f"{file} cannot be written: {error}") from error


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    scheme, _, rest = url.partition("://")
    hosts = ",".join(part.rpartition("@")[2] for part in rest.split(","))
    return f"{scheme}://{hosts}"


def shown(options: Mapping[str, object]) -> dict[str, object]:
    """Options as they may be shown."""
    return {name: "***" if any(word in name for word in _SECRET) else value for name, value in options.items()}


def _line(name: str, value: object) -> str:
    """A setting as a line of TOML; empty if it would not be read as it is."""
    import tomllib

    try:
        line = f"{_quote(name)} = {_quote(value)}"
        return line if tomllib.loads(line.encode().decode()) == {name: value} else ""
    except (TypeError, ValueError):
        return ""


def _quote(value: object) -> str:
    """Most of what TOML has is written in it as in JSON."""
    import json

    return json.dumps(value, ensure_ascii=False)
