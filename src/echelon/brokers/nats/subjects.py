"""Subjects with wildcards, compared with each other. (`echelon.keys.matches` compares one with a plain subject.)"""


def covers(filter: str, pattern: str) -> bool:
    """Whether the filter takes in every subject that the pattern stands for."""
    outer, inner = filter.split("."), pattern.split(".")
    for place, token in enumerate(outer):
        if token == ">":
            return len(inner) > place
        if place >= len(inner) or inner[place] == ">" or token not in ("*", inner[place]):
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
    tokens = filter.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            tokens[place] = f"{{{{Wildcard({count})}}}}"
    return ".".join(tokens)
