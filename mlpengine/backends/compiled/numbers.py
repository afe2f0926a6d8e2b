"""Numbers of Python as constants in C."""

import re

from mlpengine.ops._op import GradOp


def literal(value: float, itemsize: int) -> str:
    """Return a C constant that reads back as exactly `value`, rounded to the type of `itemsize`."""
    text = float(value).hex()
    if text in ("inf", "-inf"):
        text = text.replace("inf", "INFINITY")
    return f"{text}f" if itemsize == 4 and "INF" not in text else text


def with_options(code: str, op: GradOp) -> str:
    """Return `code` with every ``@name`` replaced by the op's hyper-parameter of that name."""
    return re.sub(r"@(\w+)", lambda m: f"(real){float(getattr(op, m[1])).hex()}", code)
