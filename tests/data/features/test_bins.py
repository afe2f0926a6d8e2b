"""The piecewise-linear encoding against loops over exact quantiles and bins."""

import math

import numpy as np
import pytest

from mlpengine.core.errors import CheckpointError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table

NAN = float("nan")
g = np.random.default_rng(4)
COLUMNS = {
    "normal": g.normal(1e6, 3, 300),
    "skewed": np.exp(g.normal(0, 4, 300)),
    "gaps": np.where(g.random(300) < 0.3, NAN, g.normal(-5, 1, 300)),
    "mostly zero": np.maximum(0.0, g.normal(-0.7, 1, 300)),
    "repeated, uneven": np.repeat([0.0, 0.1, 0.7, 5.0], [7, 18, 125, 150]),
    "integers": g.integers(0, 5, 300) * 1.0,
    "three values, one frequent": np.repeat([0.0, 1.0, 2.0], [298, 1, 1]),
    "huge": np.linspace(-1e100, 1e100, 300),
    "tiny": np.arange(300) * 1e-150,
}
FEW = {
    "constant": np.full(300, 0.1),
    "two values": np.repeat([1.0, 4.0], [13, 287]),
    "two values and gaps": np.repeat([1.0, NAN, 4.0], 100),
    "empty": np.full(300, NAN),
    "rounding noise": 0.1 + np.arange(300) % 3 * 2e-17,
}


def quantile_edges(column: np.ndarray, bins: int) -> list[float]:
    """Return the distinct quantiles, by places that are whole numbers and remainders."""
    cells = sorted(cell for cell in column.tolist() if not math.isnan(cell))
    edges = set()
    for k in range(bins + 1):
        place, beyond = divmod(k * (len(cells) - 1), bins)
        edge = cells[place]
        if beyond:
            edge += (cells[place + 1] - cells[place]) * (beyond / bins)
        edges.add(edge)
    return sorted(edges)


def component(x: float, edges: list[float], i: int) -> float:
    """Return how far x is through bin i."""
    low = -1.0 if i == 0 else 0.0
    high = 2.0 if i == len(edges) - 2 else 1.0
    share = (x - edges[i]) / (edges[i + 1] - edges[i])
    return min(max(share, low), high)


def fit(columns: dict[str, np.ndarray], **options: object) -> Preprocessor:
    table = Table({name: Column(cells) for name, cells in columns.items()})
    return Preprocessor(encoding="piecewise", **options).fit(table)


@pytest.mark.parametrize("bins", [2, 12])
@pytest.mark.parametrize("name", COLUMNS)
def test_components_are_those_of_a_loop(name, bins):
    column = COLUMNS[name]
    fitted = fit({name: column}, bins=bins, dtype="float64", missing="median")
    edges = quantile_edges(column, bins)
    assert fitted.numbers.bins.edges[0].tolist() == edges
    filled = np.where(np.isnan(column), np.nanmedian(column), column)
    inside = np.linspace(filled.min(), filled.max(), 200)
    later = np.concatenate([filled, inside, edges, [1e100, -1e100, 3.0]])
    features = fitted.transform(Table({name: Column(later)})).features
    assert features.shape == (len(later), len(edges)) == (len(later), len(fitted.feature_names))
    with np.errstate(over="ignore"):
        truth = [[component(x, edges, i) for i in range(len(edges) - 1)] for x in later]
    np.testing.assert_allclose(features[:, 1:], truth, rtol=1e-15)
    plain = Preprocessor(dtype="float64", missing="median").fit(Table({name: Column(column)}))
    np.testing.assert_array_equal(
        features[:, :1], plain.transform(Table({name: Column(later)})).features
    )
    gaps = fitted.transform(Table({name: Column(np.array([NAN, np.nanmedian(column)]))})).features
    np.testing.assert_array_equal(gaps[0], gaps[1])


@pytest.mark.parametrize("scaling", ["standard", "minmax", "robust", "none"])
def test_columns_that_hardly_vary_have_no_components(scaling):
    fitted = fit(FEW | {"x": np.arange(300.0)}, standardize=scaling, bins=3)
    names = ["x[0..99.7]", "x[99.7..199]", "x[199..299]"]
    assert fitted.feature_names == [*FEW, "x", *names]
    assert [len(edges) for edges in fitted.numbers.bins.edges] == [*[0] * len(FEW), 4]
    assert fitted.n_features == 9


def test_booleans_and_waves_of_dates_have_no_components():
    when = 1.6e9 + np.arange(300.0) * 5e4
    table = Table(
        {
            "flag": Column(np.arange(300) % 2 * 1.0, "boolean"),
            "when": Column(when, "date"),
            "later": Column(when + COLUMNS["skewed"], "date"),
            "word": Column(np.arange(300, dtype=np.int32) % 2, "text", ("a", "b")),
        }
    )
    fitted = Preprocessor(encoding="piecewise", bins=2).fit(table)
    binned = {name.partition("[")[0] for name in fitted.feature_names if "[" in name}
    assert binned == {"when", "later", "later - when"}
    assert (
        fitted.n_features == len(fitted.feature_names) == fitted.transform(table).features.shape[1]
    )


def test_names_have_the_digits_that_tell_edges_apart():
    table = {"carat": np.array([0.4, 0.7, 1.01]), "year": np.array([2000.25, 2000.5, 2001.0])}
    assert fit(table, bins=2).feature_names == [
        "carat", "year", "carat[0.4..0.7]", "carat[0.7..1.01]",
        "year[2000.2..2000.5]", "year[2000.5..2001]",
    ]  # fmt: skip


@pytest.mark.parametrize("missing", ["mean", "indicator", -3.0])
def test_components_on_demand_are_those_in_memory(missing):
    x = np.column_stack([*COLUMNS.values(), *FEW.values()])
    x = np.where(np.abs(x) > 1e30, 0.0, x).astype(np.float32)
    table = Table.from_arrays(x)
    fitted = Preprocessor(encoding="piecewise", missing=missing).fit(table, np.arange(200))
    whole = fitted.transform(table).features
    some = fitted.on_demand(table).features
    assert some.shape == whole.shape == (300, fitted.n_features)
    np.testing.assert_array_equal(some[10:20], whole[10:20])
    for i, feature in enumerate(fitted.feature_names):
        if feature.endswith("missing"):
            column = x[:, int(feature.split()[0][1:])]
            np.testing.assert_array_equal(whole[:, i], np.isnan(column))


def test_one_extreme_cell_counts_for_little():
    fitted = fit({"x": np.arange(300.0)})
    cells = Column(np.array([1e99, -1e99]))
    features = fitted.transform(Table({"x": cells})).features
    np.testing.assert_array_equal(features[:, 1:], [[1] * 11 + [2], [-1] + [0] * 11])


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0.0, 1.0], []], "numbers must have an entry for each source"),
        ([[0.0]], "numbers.edges must be increasing"),
        ([[0.0, 1.0, 1.0]], "numbers.edges must be increasing"),
        ([[1.0, 0.0]], "numbers.edges must be increasing"),
        ([[0.0, NAN]], r"edges[0][1]: must be a finite number"),
        ([0.0, 1.0], "edges[0]: must be a list"),
        (None, "edges: must be a list"),
    ],
)
def test_wrong_edges_are_refused(edges, message):
    state = fit({"x": np.arange(9.0)}).state_dict()
    state["numbers"]["edges"] = edges
    with pytest.raises(CheckpointError) as caught:
        Preprocessor.from_state(state)
    assert message in str(caught.value)
