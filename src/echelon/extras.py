"""Libraries that not everybody needs, and how to say that one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from echelon.errors import MissingComponent


@contextmanager
def extra(name: str, library: str) -> Iterator[None]:
    """For imports that need the extra `name`. Raises MissingComponent if a library of others is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("echelon"):
            raise
        raise MissingComponent(
            f"{library} is not installed (no module {error.name})", remedy=f"Run: pip install 'echelon[{name}]'"
        ) from error
