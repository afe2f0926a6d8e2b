"""Columns of lags and windows in C, by a ring buffer of the last rows of a series."""

from mlpengine.backends.scalar.definitions import FreshNames, comment_text, identifier
from mlpengine.core.wording import plural
from mlpengine.data.features.lags import RowHistory
from mlpengine.export.network_c import Real

DECLARATION = """\
/* The last rows of one series, for the columns of lags and windows.  Call {p}history_start once.
   For each row, call {p}history_fill to write these columns into x, then {p}predict, then
   {p}history_update with {sources} of the row, at indices {upper}_ROW_...; NaN: missing.{ahead} */
{macros}
typedef struct {{
  long next;
  {real} rows[{reach}][{width}];
}} {p}history;
void {p}history_start({p}history *history);
void {p}history_update({p}history *history, const {real} *row);
void {p}history_fill(const {p}history *history, {real} *x);
"""

AHEAD = "\n   {p}predict then predicts the row that is {ahead} rows after the last update."

BODY = """\
void {p}history_start({p}history *history)
{{
  history->next = 0;
  for (long i = 0; i < {reach}; i++)
    for (int k = 0; k < {width}; k++) history->rows[i][k] = NAN;
}}

void {p}history_update({p}history *history, const {real} *row)
{{
  memcpy(history->rows[history->next], row, sizeof history->rows[0]);
  history->next = (history->next + 1) % {reach};
}}

static double {p}history_earlier(const {p}history *history, int k, long lag)
{{
  return (double)history->rows[(history->next - lag + {reach}) % {reach}][k];
}}
{functions}
void {p}history_fill(const {p}history *history, {real} *x)
{{
{lines}
}}
"""

MEAN = """
static double {p}history_mean(const {p}history *history, int k, long length)
{{
  double sum = 0;
  long known = 0;
  for (long i = length; i > 0; i--) {{
    const double value = {p}history_earlier(history, k, i);
    if (!isnan(value)) sum += value, known++;
  }}
  return known ? sum / (double)known : (double)NAN;
}}
"""

STD = """
static double {p}history_std(const {p}history *history, int k, long length)
{{
  const double mean = {p}history_mean(history, k, length);
  double sum = 0;
  long known = 0;
  for (long i = length; i > 0; i--) {{
    const double apart = {p}history_earlier(history, k, i) - mean;
    if (!isnan(apart)) sum += apart * apart, known++;
  }}
  return known ? sqrt(sum / (double)known) : (double)NAN;
}}
"""

LEAST = """
static double {p}history_{name}(const {p}history *history, int k, long length)
{{
  double value = (double)NAN;
  for (long i = length; i > 0; i--) value = f{name}(value, {p}history_earlier(history, k, i));
  return value;
}}
"""

FUNCTIONS = {
    "lag": "",
    "mean": MEAN,
    "std": STD,
    "min": LEAST.replace("{name}", "min"),
    "max": LEAST.replace("{name}", "max"),
}
"""C code of the functions `mlpengine.data.features.lags.FUNCTIONS`."""


def lags_c(
    history: RowHistory, columns: list[str], name: str | None, real: Real
) -> tuple[str, str]:
    """Return the declarations and the definitions of a history; "" without lags and windows.

    `columns` are the columns of a row in C.  Unless `name` is None, all names begin with `name`.
    """
    if not history.names:
        return "", ""
    prefix, upper = f"{name}_" if name else "", identifier(name or "mlp", upper=True)
    sources, names = history.sources, FreshNames()
    macros = [
        f"#define {names.add(f'{upper}_ROW_{identifier(one, upper=True)}')} {place} "
        f"/* {comment_text(one)} */"
        for place, one in enumerate(sources)
    ]
    lines = []
    for one in history.columns:
        if one.name in columns:
            function = "earlier" if one.function == "lag" else one.function
            value = (
                f"{prefix}history_{function}(history, {sources.index(one.source)}, {one.length})"
            )
            lines.append(f"  x[{columns.index(one.name)}] = ({real}){value};")
    used = {one.function for one in history.columns}
    used |= {"mean"} if "std" in used else set()
    form = {
        "p": prefix,
        "upper": upper,
        "real": real,
        "reach": max(one.length for one in history.columns),
        "width": len(sources),
        "sources": plural(len(sources), "number"),
        "macros": "\n".join(macros),
        "ahead": AHEAD.format(p=prefix, ahead=history.ahead) if history.ahead > 1 else "",
        "functions": "".join(c.format(p=prefix) for n, c in FUNCTIONS.items() if n in used),
        "lines": "\n".join(lines),
    }
    return DECLARATION.format(**form), BODY.format(**form)
