"""Loops over the vectors of a row; the last vector may be partial."""

from collections.abc import Sequence

from mlpengine.backends.compiled.statements import ForLoop, If, Scope, Statement


def lane_loop(count: int, lanes: int, body: Sequence[Statement]) -> Sequence[Statement]:
    """Return a loop over the vectors of a row of `count` entries; a vector has ``n`` entries."""
    whole = count // lanes * lanes
    parts: list[Statement] = []
    if whole:
        parts.append(ForLoop("j", 0, whole, ["const int64_t n = LANES;", *body], step="LANES"))
    if count % lanes:
        head = f"const int64_t j = {whole}, n = {count % lanes};"
        parts.append(Scope([head, *body]))
    return parts


def mask_lanes(name: str, value: str) -> Statement:
    """Return the statement that sets lanes of `name` beyond the end of a row to `value`."""
    return If("n < LANES", [f"{name} = vselect(first_lanes(n), {name}, splat({value}));"])
