"""An estimate of the flash that a source file needs for floats, before anything is compiled.

Constants are counted; code is a linear function of what the text contains.  The coefficients were
fitted by ``python benchmarks/device_flash.py`` to the sizes that arm-none-eabi-gcc 12.2 -Os gives
16 usual files and 150 random ones.  Files that a fit has not used differ by 2.0 % (M4F) and 2.4 %
(M0), root mean square, and by 6.5 % and 7.6 % at most.
"""

import re
from collections.abc import Callable

BOARDS = ("Cortex-M4F", "Cortex-M0")
"""The processors of the estimates."""

_BYTES = {"real": 4, "unsigned short": 2, "unsigned char": 1, "int8_t": 1, "int16_t": 2}

_NAMES = r"\n(?:static )?(?:void|int|real|\w+_REAL) (\w+)\("


def _count(pattern: str) -> Callable[[str], int]:
    return lambda text: len(re.findall(pattern, text))


def _called(times: int) -> Callable[[str], int]:
    """Count functions by their calls: a compiler inlines those with a single one."""
    return lambda text: sum(
        len(re.findall(rf"\b{name}\(", text)) == times + 1 for name in re.findall(_NAMES, text)
    )


COUNTERS: dict[str, Callable[[str], int]] = {
    "file": lambda text: 1,
    "function": _count(r"\n(?:static|void|int|\w+_REAL) .*\)\n\{"),
    "called once": _called(1),
    "called twice": _called(2),
    "statement": _count(r";\n"),
    "loop": _count(r"\bfor \("),
    "branch": _count(r"\bif \("),
    "product": _count(r" \* "),
    "element": _count(r"\[\w"),
    "place": _count(r"scratch \+"),
    "large number": _count(r"\b\d{3,}\b"),
    "saved vector": _count(r"put_reals\(|get_reals\("),
    "literal": lambda text: len(set(re.findall(r"(?:R|splat)\((-?[\d.e+-]+)\)", text))),
    **{
        name: _count(rf"\b{name}\(")
        for name in (
            "is_nan", "one_hot", "vselect", "vmax", "v_abs", "v_exp", "v_expm1", "v_log",
            "v_log1p_exp_of_minus_abs", "v_maximum", "v_sigmoid", "v_softplus", "v_sqrt", "v_tanh",
        )
    },
    **{f"my_{name}": _count(rf"static real my_{name}\(") for name in ("erfc", "log", "tanh")},
}  # fmt: skip
"""What is counted in the text of a file, comments and constants left out."""

COEFFICIENTS: dict[str, tuple[float, float]] = {
    "file": (-351.1, -1067.3),
    "function": (-41.7, -5.5),
    "called once": (-2.8, -5.3),
    "called twice": (9.7, -1.9),
    "statement": (4.9, 7.7),
    "loop": (3.7, -13.1),
    "branch": (140.0, 133.6),
    "product": (15.8, 21.8),
    "element": (11.2, 14.4),
    "place": (17.7, 14.5),
    "large number": (5.9, 8.6),
    "saved vector": (-19.6, -11.8),
    "literal": (30.1, 28.8),
    "is_nan": (-115.6, -176.9),
    "one_hot": (-43.2, -1.2),
    "vselect": (-62.4, -83.0),
    "vmax": (49.8, -2.5),
    "v_abs": (-12.1, -30.8),
    "v_exp": (-116.9, -164.8),
    "v_expm1": (-70.1, -103.9),
    "v_log": (-125.7, 35.6),
    "v_log1p_exp_of_minus_abs": (141.7, 252.1),
    "v_maximum": (7.5, -45.4),
    "v_sigmoid": (-20.1, -57.8),
    "v_softplus": (72.2, 46.2),
    "v_sqrt": (-22.2, -44.2),
    "v_tanh": (-90.4, -133.3),
    "my_erfc": (168.1, 252.8),
    "my_log": (616.9, 744.9),
    "my_tanh": (208.4, 230.8),
}
"""Bytes of each on the `BOARDS`, as far as it varies."""


AVR_COEFFICIENTS = {
    "file": 609.7,
    "statement": 52.8,
    "vmax": 263.8,
    "v_exp": 176.0,
    "v_sigmoid": 234.3,
}
"""Bytes of each in a program with 8-bit weights for an ATmega328P, arithmetic of floats included.

They were fitted by ``python benchmarks/device_flash.py --avr`` to what avr-gcc 5.4 -Os gives 150
models; models that a fit has not used differ by 2.0 %, root mean square, and by 5.0 % at most.
"""


def constant_bytes(source: str) -> int:
    """Return the bytes of the constant arrays of a file."""
    kinds = "|".join(_BYTES)
    pattern = rf"^static const (?:IN_FLASH )?({kinds}) \w+\[(\d+)\]"
    arrays = re.findall(pattern, source, re.MULTILINE)
    return sum(int(count) * _BYTES[kind] for kind, count in arrays)


def counts(source: str) -> list[int]:
    """Return what `COUNTERS` counts."""
    text = re.sub(r"static const [^;]*;", "", source[source.index("#define v_normal_cdf") :])
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = text.replace("v_tanh_softplus(", "v_tanh(v_softplus(")
    own = source[: source.index("#define v_normal_cdf")]
    return [count(own if name.startswith("my_") else text) for name, count in COUNTERS.items()]


def flash_bytes(source: str) -> dict[str, int]:
    """Return the bytes of code and constants of a source file by board, libm not counted."""
    code = zip(*(COEFFICIENTS[name] for name in COUNTERS), strict=True)
    counted, constants = counts(source), constant_bytes(source)
    return {
        board: constants + round(sum(n * each for n, each in zip(counted, column, strict=True)))
        for board, column in zip(BOARDS, code, strict=True)
    }


def avr_flash_bytes(source: str) -> int:
    """Return the bytes of flash of a program with 8-bit weights on an ATmega328P."""
    counted = zip(COUNTERS, counts(source), strict=True)
    code = sum(AVR_COEFFICIENTS.get(name, 0.0) * count for name, count in counted)
    return constant_bytes(source) + round(code)
