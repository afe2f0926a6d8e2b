"""The data of a run: what each column holds, and how the parts differ."""

from typing import Any

from mlpengine.config.build import LoadedData
from mlpengine.core.rows import evenly_spaced
from mlpengine.data.features.checks import column_profile
from mlpengine.data.features.drift import drifts

REPORT_COLUMNS = 200
"""Number of columns that are described; in wider tables, the first ones."""


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
    drift = {
        name: {one.column: one for one in drifts(preprocessor, part)}
        for name, part in samples.items()
        if name != "train"
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
                "drift": {
                    part: {"value": known[name].value, "odd": known[name].is_odd}
                    for part, known in drift.items()
                    if name in known
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
