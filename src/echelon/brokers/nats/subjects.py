"""Subjects with wildcards, compared with each other; `echelon.keys.matches` compares one with a plain subject."""


def covers(filter: str, pattern: str) -> bool:
    """Whether the filter takes in every subject that the pattern stands for."""
    outer, inner = filter.split("."), pattern.split(".")
    for place, word in enumerate(outer):
        if word == ">":
            return len(inner) > place
        if place >= len(inner) or inner[place] == ">" or word not in ("*", inner[place]):
            return False
    return len(inner) == len(outer)


def overlap(one: str, other: str) -> bool:
    """Whether there is a subject that both stand for."""
    first, second = one.split("."), other.split(".")
    for a, b in zip(first, second, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(first) == len(second)


def number_wildcards(filter: str) -> str:
    """The filter as the destination of a subject transform that changes nothing."""
    words = filter.split(".")
    stars = [place for place, word in enumerate(words) if word == "*"]
    for number, place in enumerate(stars, 1):
        words[place] = f"{{{{Wildcard({number})}}}}"
    return ".".join(words)
