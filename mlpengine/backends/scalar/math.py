"""C that comes before the definitions of a file: types, and macros for functions of math.h."""

import re

from mlpengine.backends.scalar.definitions import IN_FLASH
from mlpengine.formula import SCALARS

PRELUDE = (
    """\
#if {upper}_DOUBLE && defined(__SIZEOF_DOUBLE__) && __SIZEOF_DOUBLE__ < 8
#error "double has fewer than 8 bytes here; an AVR needs avr-gcc 10 or later, with -mdouble=64"
#endif
typedef {upper}_REAL real;
#define R(x) ((real)(x))
"""
    + IN_FLASH
)
"""The type ``real``, which the macros ``NAME_REAL`` and ``NAME_DOUBLE`` select."""

BITS = """\
#if {upper}_DOUBLE
typedef uint64_t bits;
#define INFINITE ((bits)0x7ff << 52)
#else
typedef uint32_t bits;
#define INFINITE ((bits)0xff << 23)
#endif

/* The bits of x without its sign; comparing them is right under -ffast-math, too. */
static bits magnitude(real x)
{{
  bits b;
  memcpy(&b, &x, sizeof b);
  return b & (((bits)1 << (sizeof(real) * 8 - 1)) - 1);
}}
#define is_finite(x) (magnitude(x) < INFINITE)
#define is_nan(x) (magnitude(x) > INFINITE)

"""
"""Functions that detect NaN and infinity; they need ``stdint.h`` and ``string.h``."""

LIBM = """\
#if {upper}_DOUBLE
#define M(name) name
#else
#define M(name) name##f
#endif
"""


def mathematics(text: str, upper: str) -> str:
    """Return the C that the definitions `text` need; `upper` is NAME in ``NAME_REAL``."""
    head = PRELUDE.format(upper=upper)
    if re.search(r"\bis_(finite|nan)\b", text):
        head += BITS.format(upper=upper)
    return head + LIBM.format(upper=upper) + SCALARS + "\n"
