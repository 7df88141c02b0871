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
from typing import Any

from echelon.errors import InvalidConfig, UnknownName


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
            found: dict[str, Any] = tomllib.loads(file.read_text())
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as error:
            raise InvalidConfig(f"{file} cannot be read: {error}", remedy="Mend it, or delete it") from error
        self.default: str | None = found.get("default")
        self.all: dict[str, dict[str, object]] = found.get("contexts", {})
        if not isinstance(self.all, dict) or not all(isinstance(each, dict) for each in self.all.values()):
            raise InvalidConfig(f"in {file} contexts are not tables", remedy='Write: [contexts.name] and url = "..."')

    def find(self, name: str) -> tuple[str, dict[str, object]]:
        """The URL and the options of a context. Raises UnknownName, with the names that look alike."""
        if name not in self.all:
            from echelon.ops.listing import suggestion

            raise UnknownName(f"there is no context {name}", remedy=suggestion(name, list(self.all), "context ls"))
        options = dict(self.all[name])
        url = options.pop("url", None)
        if not isinstance(url, str):
            raise InvalidConfig(f"the context {name} has no url", remedy=f"Give it one in {config_file()}")
        return url, options

    def save(self) -> None:
        """Write the file, for its owner's eyes only: it may hold passwords."""
        file = config_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"default = {_quote(self.default)}\n"] if self.default is not None else []
        for name, options in sorted(self.all.items()):
            lines += [f"[contexts.{_quote(name)}]", *(f"{_quote(n)} = {_quote(v)}" for n, v in options.items()), ""]
        new = file.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            opened.write("\n".join(lines))
        new.replace(file)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    scheme, _, rest = url.partition("://")
    hosts = ",".join(part.rpartition("@")[2] for part in rest.split(","))
    return f"{scheme}://{hosts}"


def shown(options: Mapping[str, object]) -> dict[str, object]:
    """Options as they may be shown."""
    return {n: "***" if "password" in n or n == "token" else v for n, v in options.items()}


def _quote(value: object) -> str:
    """A string, number or boolean as TOML has it; strings are written as in JSON."""
    import json

    return json.dumps(value, ensure_ascii=False)
