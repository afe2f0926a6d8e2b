"""The data of a run: what each column holds, and how the parts differ."""

from typing import Any

import numpy as np

from mlpengine.config.build import LoadedData
from mlpengine.core.rows import evenly_spaced
from mlpengine.data.features.checks import column_profile
from mlpengine.data.features.thresholds import KS_LIMIT
from mlpengine.data.tables import Column
from mlpengine.diagnostics.baselines import largest_shift

REPORT_COLUMNS = 200
"""Number of columns that are described; in wider tables, the first ones."""

Z_LIMIT = 4.0
"""Standard errors of a difference of shares beyond which it is no chance."""


def data_of(loaded: LoadedData, rows: int) -> dict[str, Any]:
    """Return the columns, what each is used for, and their differences between the parts.

    They are computed from at most `rows` evenly spaced rows of each part.
    """
    tables, data = loaded.tables, loaded.file.config.data
    preprocessor = tables.preprocessor
    samples = {
        name: preprocessor.with_computed(table.rows(numbers[evenly_spaced(len(numbers), rows)]))
        for name, (table, numbers) in tables.parts.items()
    }
    train = samples["train"]
    unknown = {
        name: preprocessor.unknown_texts(part) for name, part in samples.items() if name != "train"
    }
    uses = _uses(loaded)
    columns = []
    for name in train.names[:REPORT_COLUMNS]:
        facts = column_profile(name, train[name])
        columns.append(
            {
                "name": name,
                "use": uses.get(name, "feature" if name in preprocessor.kinds else "not used"),
                "kind": preprocessor.kinds.get(name, facts.kind),
                "missing": facts.missing / max(1, train.n_rows),
                "distinct": facts.distinct,
                "holds": facts.summary,
                "shift": {
                    part: _shift(train[name], other[name])
                    for part, other in samples.items()
                    if part != "train" and name in other
                },
                "unknown": {
                    part: {"share": texts[name][0] / samples[part].n_rows, "text": texts[name][1]}
                    for part, texts in unknown.items()
                    if name in texts
                },
            }
        )
    return {
        "rows": tables.rows,
        "sampled": {name: part.n_rows for name, part in samples.items()},
        "left_out": tables.remarks,
        "columns": columns,
        "more_columns": max(0, len(train.names) - REPORT_COLUMNS),
        "features": preprocessor.n_features,
        "constant": preprocessor.constant,
        "where": data.where,
        "computed": dict(data.features),
    }


def _uses(loaded: LoadedData) -> dict[str, str]:
    data, target = loaded.file.config.data, loaded.tables.preprocessor.target
    uses = dict.fromkeys(data.features, "computed")
    uses |= dict.fromkeys(data.drop, "dropped")
    for name, use in (
        (data.weight, "weight"),
        (data.split.group, "groups of the split"),
        (data.split.time, "times of the split"),
    ):
        if name:
            uses[name] = use
    return uses | dict.fromkeys(target.columns if target else (), "target")


def _shift(one: Column, other: Column) -> dict[str, Any] | None:
    """Return the distance of two parts of a column, 0 to 1, and whether it exceeds chance.

    For numbers, the distance is the largest difference of the shares below any value (Kolmogorov
    and Smirnov).  For texts, it is the largest difference of the shares of a text.
    """
    if one.kind != other.kind:
        return None
    if one.kind == "text":
        return _text_shift(one, other)
    a, b = (np.sort(c.values[~c.missing].astype(np.float64)) for c in (one, other))
    if not len(a) or not len(b):
        return None
    distance = largest_shift(a, b)
    return {"value": distance, "odd": distance > KS_LIMIT * np.sqrt(1 / len(a) + 1 / len(b))}


def _text_shift(one: Column, other: Column) -> dict[str, Any] | None:
    names = {level: k for k, level in enumerate(dict.fromkeys([*one.levels, *other.levels]))}
    counts = []
    for column in (one, other):
        numbers = np.array([names[level] for level in column.levels], np.int64)
        known = column.values[column.values >= 0]
        counts.append(np.bincount(numbers[known], minlength=len(names)))
    sizes = [count.sum() for count in counts]
    if not all(sizes):
        return None
    share = counts[0] / sizes[0] - counts[1] / sizes[1]
    pooled = (counts[0] + counts[1]) / sum(sizes)
    error = np.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    odd = np.abs(share) > Z_LIMIT * np.maximum(error, 1e-12)
    rare = (counts[0] + counts[1]) < 10
    return {"value": float(np.abs(share).max()), "odd": bool((odd & ~rare).any())}
