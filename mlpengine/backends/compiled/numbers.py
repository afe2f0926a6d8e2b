"""Numbers of Python as constants in C."""


def literal(value: float, itemsize: int) -> str:
    """Return a C constant that reads back as exactly `value`, rounded to the type of `itemsize`."""
    text = float(value).hex()
    if text in ("inf", "-inf"):
        text = text.replace("inf", "INFINITY")
    return f"{text}f" if itemsize == 4 and "INF" not in text else text
