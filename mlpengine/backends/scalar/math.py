"""The mathematics of generated files: macros for libm, or functions that need no library."""

import re

from mlpengine.backends.scalar.definitions import IN_FLASH
from mlpengine.formula import SCALARS
from mlpengine.formula.numpy_functions import TAIL_DOUBLE, TAIL_SINGLE

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
"""Needs the macros ``NAME_REAL`` and ``NAME_DOUBLE``."""

BITS = """\
#if {upper}_DOUBLE
typedef uint64_t bits;
#define MANTISSA 52
#define BIAS 1023
#else
typedef uint32_t bits;
#define MANTISSA 23
#define BIAS 127
#endif
#define INFINITE ((bits)(2 * BIAS + 1) << MANTISSA)

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
"""Tells finite numbers; needs ``stdint.h``, ``string.h`` and the macro ``NAME_DOUBLE``."""

LIBM = """\
#if {upper}_DOUBLE
#define M(name) name
#else
#define M(name) name##f
#endif
"""

FREE = """\
#define M(name) my_##name
#undef NAN
#undef INFINITY
#define NAN from_bits(INFINITE + 1)
#define INFINITY from_bits(INFINITE)
#define my_fabs(x) ((x) < 0 ? -(x) : (x))

"""


def _series(name: str, double: list[float], single: list[float]) -> str:
    return (
        "#if {upper}_DOUBLE\n"
        + "#else\n".join(
            f"static const real {name}[] = {{{{{', '.join(f'R({v!r})' for v in values)}}}}};\n"
            for values in (double, single)
        )
        + "#endif\n"
    )


_FACTORS = [1 / n for n in range(2, 15)]
_ODD = [1 / (2 * n + 1) for n in range(12)]

MATH_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "from_bits": ((), """\
static real from_bits(bits b)
{{
  real x;
  memcpy(&x, &b, sizeof x);
  return x;
}}
"""),
    "power_of_two": (("from_bits",), """\
static real power_of_two(int k)
{{
  return from_bits((bits)(k + BIAS) << MANTISSA);
}}
"""),
    "ln2": ((), """\
#if {upper}_DOUBLE
#define LN2_HIGH R(6.93147180369123816490e-01)
#define LN2_LOW R(1.90821492927058770002e-10)
#define LARGEST_LOG R(709.782712893384)
#define SMALLEST_LOG R(-745.1)
#else
#define LN2_HIGH R(0.693359375)
#define LN2_LOW R(-2.12194440054690583e-4)
#define LARGEST_LOG R(88.722839)
#define SMALLEST_LOG R(-103.9)
#endif
"""),
    "exponential": (("power_of_two", "ln2"), _series("factors", _FACTORS, _FACTORS[:7]) + """\
/* exp(x) - low, low being 0 or 1: 2^k (1 + r + r^2 / 2 + ...) with x = k log(2) + r */
static real exponential(real x, real low)
{{
  if (is_nan(x)) return x;
  if (x > LARGEST_LOG) return INFINITY;
  if (x < SMALLEST_LOG) return -low;
  const int k = (int)(x * R(1.4426950408889634) + (x < 0 ? R(-0.5) : R(0.5)));
  const real r = (x - R(k) * LN2_HIGH) - R(k) * LN2_LOW;
  real sum = 1;
  for (size_t n = sizeof factors / sizeof factors[0]; n-- > 0;) sum = sum * r * factors[n] + 1;
  sum *= r;
  if (k == 0) return sum + (1 - low);
  const real half = power_of_two(k / 2);
  return (sum * half + half) * power_of_two(k - k / 2) - low;
}}
"""),
    "exp": (("exponential",), "#define my_exp(x) exponential(x, 0)\n"),
    "expm1": (("exponential",), "#define my_expm1(x) exponential(x, 1)\n"),
    "tanh": (("expm1",), """\
static real my_tanh(real x)
{{
  const real t = my_expm1(2 * my_fabs(x));
  const real y = my_fabs(x) > 20 ? R(1) : t / (t + 2);
  return is_nan(x) ? x : x < 0 ? -y : y;
}}
"""),
    "log_series": ((), _series("odd", _ODD, _ODD[:6]) + """\
/* log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...) */
static real log_series(real s)
{{
  real sum = 0;
  for (size_t n = sizeof odd / sizeof odd[0]; n-- > 0;) sum = sum * s * s + odd[n];
  return 2 * s * sum;
}}
"""),
    "log": (("log_series", "ln2", "power_of_two"), """\
static real my_log(real x)
{{
  int k = 0;
  if (is_nan(x) || x < 0) return NAN;
  if (x == 0) return -INFINITY;
  if (!is_finite(x)) return x;
  if (magnitude(x) >> MANTISSA == 0) {{
    x *= power_of_two(MANTISSA + 1);
    k = -(MANTISSA + 1);
  }}
  k += (int)(magnitude(x) >> MANTISSA) - BIAS;
  x = from_bits((magnitude(x) & (((bits)1 << MANTISSA) - 1)) | (bits)BIAS << MANTISSA);
  if (x > R(1.4142135623730951)) {{
    x /= 2;
    k++;
  }}
  return R(k) * LN2_HIGH + (R(k) * LN2_LOW + log_series((x - 1) / (x + 1)));
}}
"""),
    "log1p": (("log", "log_series"), """\
static real my_log1p(real x)
{{
  return x > R(-0.29) && x < R(0.41) ? log_series(x / (x + 2)) : my_log(x + 1);
}}
"""),
    "log2": (("log",), "#define my_log2(x) (my_log(x) * R(1.4426950408889634))\n"),
    "sqrt": (("power_of_two",), """\
/* Newton's iteration, from half of the exponent */
static real my_sqrt(real x)
{{
  real scale = 1;
  if (is_nan(x) || x < 0) return NAN;
  if (x == 0 || !is_finite(x)) return x;
  if (magnitude(x) >> MANTISSA == 0) {{
    x *= power_of_two(54);
    scale = power_of_two(-27);
  }}
  real y = from_bits((magnitude(x) >> 1) + ((bits)BIAS << (MANTISSA - 1)));
  for (int n = 0; n < (MANTISSA > 23 ? 5 : 4); n++) y = R(0.5) * (y + x / y);
  return y * scale;
}}
"""),
    "erfc": (("exp",), _series("tail", list(TAIL_DOUBLE), list(TAIL_SINGLE)) + """\
/* The normal distribution's tail is exp(-z^2 / 2) times a polynomial of (z - 4) / (z + 4). */
static real my_erfc(real x)
{{
  real z = my_fabs(x) * R(1.4142135623730951), sum = 0;
  if (is_nan(x)) return x;
  if (z > 39) z = 39;
  const real u = 1 - 8 / (z + 4);
  for (size_t n = 0; n < sizeof tail / sizeof tail[0]; n++) sum = sum * u + tail[n];
  sum *= 2 * my_exp(R(-0.5) * z * z);
  return x < 0 ? 2 - sum : sum;
}}
"""),
    "pow": (("exp", "log"), """\
static real my_pow(real x, real n)
{{
  if (x == 0) return n > 0 ? R(0) : INFINITY;
  const real y = my_exp(n * my_log(my_fabs(x)));
  if (x > 0) return y;
  if (R((long)n) != n) return NAN;
  return (long)n % 2 ? -y : y;
}}
"""),
    "wave": ((), """\
/* sin(x + quarters pi / 2), for abs(x) < 100,000 */
static real wave(real x, int quarters)
{{
  if (!(my_fabs(x) < 100000)) return NAN;
  const int k = (int)(x * R(0.6366197723675814) + (x < 0 ? R(-0.5) : R(0.5)));
#if {upper}_DOUBLE
  const real r = ((x - R(k) * R(1.57079632673412561417e+00)) - R(k) * R(6.07710050630396597660e-11))
                 - R(k) * R(2.02226624879595063154e-21);
#else
  const real r = ((x - R(k) * R(1.5703125)) - R(k) * R(4.837512969970703e-4))
                 - R(k) * R(7.54978995489188216e-8);
#endif
  const int part = (k + quarters) & 3;
  real term = part & 1 ? R(1) : r, sum = term;
  for (int n = part & 1 ? 1 : 2; n < 20; n += 2) {{
    term *= -r * r / R(n * (n + 1));
    sum += term;
  }}
  return part & 2 ? -sum : sum;
}}
"""),
    "sin": (("wave",), "#define my_sin(x) wave(x, 0)\n"),
    "cos": (("wave",), "#define my_cos(x) wave(x, 1)\n"),
    "floor": ((), """\
static real my_floor(real x)
{{
  if (!(my_fabs(x) < R(9e15))) return x;
  const real whole = R((int64_t)x);
  return whole > x ? whole - 1 : whole;
}}
"""),
}  # fmt: skip
"""The functions of math.h and of their dependencies; each function follows its dependencies."""

_MACRO = re.compile(r"#define (v_\w+)((?:\(.*?\))?(?:.*\\\n)?.*)")


def needed_functions(text: str) -> set[str]:
    """Return the functions of math.h that `text` calls, by the macros of `SCALARS` or by ``M``."""
    bodies = dict(_MACRO.findall(SCALARS))
    names, pending = set(), {*re.findall(r"\bv_\w+", text)}
    done: set[str] = set()
    while pending:
        name = pending.pop()
        done.add(name)
        body = bodies.get(name, "")
        names |= {*re.findall(r"\bM\((\w+)\)", body)}
        pending |= {*re.findall(r"\bv_\w+", body)} - done
    return names | {*re.findall(r"\bM\((\w+)\)", text)}


def mathematics(text: str, upper: str, *, libm: bool) -> str:
    """Return the C that a file needs before `text`: types, macros, and functions without `libm`."""
    head = PRELUDE.format(upper=upper)
    if not libm or re.search(r"\bis_(finite|nan)\b", text):
        head += BITS.format(upper=upper)
    if libm:
        return head + LIBM.format(upper=upper) + SCALARS + "\n"
    wanted = needed_functions(text)
    wanted |= {"from_bits"} if re.search(r"\b(NAN|INFINITY)\b", text) else set()
    for name, (needs, _) in reversed(MATH_FUNCTIONS.items()):
        if name in wanted:
            wanted |= {*needs}
    own = "\n".join(
        body.format(upper=upper) for name, (_, body) in MATH_FUNCTIONS.items() if name in wanted
    )
    return head + FREE + own + "\n" + SCALARS + "\n"
