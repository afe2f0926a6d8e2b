"""Compare the errors of default models with other libraries, on real tables.

``python benchmarks/arena.py FOLDER --results OUT`` needs the extra ``quality``.  It reads the
tables that FOLDER/tables.json lists (name, csv, target, task; optionally columns to drop,
categorical columns, a group or a time).  ``--smoke`` uses two tables of the package instead.  Each
table is split three times into 80 % training and 20 % test rows: by group if it has a group column,
else at random.  A table with a time column is split once; the last fifth is the test.  Every
method has its default settings, one thread, and two forms: alone, and as the mean of eight fits
without one fold each (*bagged*; for RealMLP, its own cross-validation).  mlpengine has three forms:
the ensemble that ``init`` proposes, one of its networks, and a network that ``distill`` trains.

The script prints root mean squared errors or log losses, geometric means of their ratios, mean
ranks, Elo (``bencheval`` of TabArena) and processor time, separately for random, grouped and timed
splits.  ``--half choose`` and ``--half report`` are alternate tables in alphabetical order:
settings are chosen on the first half, and published figures are from the second half.

Errors of fits are lines of OUT/results.jsonl, and predictions are files beside it, so that a run
continues where an earlier run stopped.  ``--show`` prints the results without new fits.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ.update(ONE)  # before NumPy is imported

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from machine import restart_clean  # noqa: E402
from quality_methods import Method, methods  # noqa: E402
from quality_tables import Problem, shipped  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.model_selection import (  # noqa: E402
    GroupShuffleSplit,
    KFold,
    StratifiedKFold,
    train_test_split,
)

OURS = "mlpengine"
SPLITS = 3
FOLDS = 8
LARGEST = 20_000
"""Maximum rows; a larger table is sampled."""


@dataclass(frozen=True)
class Contest:
    """A table, and how its rows are split into training and test: random, group or time."""

    problem: Problem
    kind: str
    together: pd.Series | None = None

    @property
    def splits(self) -> int:
        return 1 if self.kind == "time" else SPLITS

    def parts(self, split: int) -> tuple[Problem, pd.DataFrame, pd.DataFrame]:
        """Return the problem, the training rows and the test rows."""
        frame, numbers = self.problem.frame, np.arange(len(self.problem.frame))
        if self.kind == "time":
            cut = len(frame) * 4 // 5
            train, test = numbers[:cut], numbers[cut:]
        elif self.kind == "group":
            chosen = GroupShuffleSplit(1, test_size=0.2, random_state=split)
            train, test = next(chosen.split(numbers, groups=self.together))
        else:
            labels = frame[self.problem.target] if self.problem.is_classification else None
            train, test = train_test_split(
                numbers, test_size=0.2, random_state=split, stratify=labels
            )
        problem = self.problem
        if self.together is not None:
            problem = replace(problem, together=(self.kind, self.together.iloc[train]))
        train, test = (frame.iloc[rows].reset_index(drop=True) for rows in (train, test))
        return problem, train, test


def read_contest(folder: Path, entry: dict) -> Contest:
    """Return the table of an entry of ``tables.json``, sorted by time if it has a time column."""
    frame = pd.read_csv(
        folder / entry["csv"], keep_default_na=False, na_values=[""], low_memory=False
    ).dropna(subset=[entry["target"]])
    kind = "time" if entry.get("time") else "group" if entry.get("group") else "random"
    if len(frame) > LARGEST:
        frame = frame.sample(LARGEST, random_state=0)
    if kind == "time":
        frame = frame.sort_values(entry["time"], kind="stable")
    frame = frame.reset_index(drop=True)
    name = entry.get(kind)
    together = frame[name] if name else None
    if kind == "time" and name in entry.get("drop", []):
        together = together.rank(method="dense")  # as numbers, dates are no features
    for column in entry.get("as_categories", []):
        frame[column] = "c" + frame[column].astype(str)
    frame = frame.drop(columns=entry.get("drop", []))
    classes = entry["task"] == "classification"
    if classes:
        frame[entry["target"]] = frame[entry["target"]].astype(str)
        counts = frame[entry["target"]].value_counts()
        frame = frame[~frame[entry["target"]].isin(counts.index[counts < 2 * FOLDS])]
        together = together if together is None else together[frame.index]
        frame = frame.reset_index(drop=True)
        if frame[entry["target"]].str.fullmatch(r"[-+0-9.]+").all():
            frame[entry["target"]] = "class " + frame[entry["target"]]
    return Contest(Problem(entry["name"], frame, entry["target"], classes), kind, together)


def contests(folder: Path, half: str | None, names: Sequence[str] | None) -> Iterator[Contest]:
    """Read and yield the tables of a folder one by one, without tables of survival times."""
    entries = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
    entries = sorted((e for e in entries if e["task"] != "survival"), key=lambda e: e["name"])
    if half:
        entries = entries[half == "report" :: 2]
    for entry in entries:
        if not names or entry["name"] in names:
            yield read_contest(folder, entry)


def bagged(method: Method) -> Method:
    """Return a method that predicts the mean of eight fits, each without one fold."""

    def fit(problem: Problem, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
        kind = StratifiedKFold if problem.is_classification else KFold
        folds = kind(FOLDS, shuffle=True, random_state=seed).split(train, train[problem.target])
        return np.mean(
            [
                method(problem, train.iloc[rows].reset_index(drop=True), test, FOLDS * seed + i)
                for i, (rows, _) in enumerate(folds)
            ],
            axis=0,
        )

    return fit


def _realmlp_bagged(
    problem: Problem, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    from quality_methods import fit_pytabkit

    return fit_pytabkit("RealMLP_TD", problem, train, test, seed, n_cv=FOLDS)


def contestants() -> dict[str, Method]:
    """Return the methods by name, without methods of libraries that are not installed."""
    known = methods()
    ours = {name: method for name, method in known.items() if name.startswith(OURS)}
    alone = {name: method for name, method in known.items() if name not in ours}
    several = {f"{name}, bagged": bagged(method) for name, method in alone.items()}
    if "RealMLP" in known:
        several["RealMLP, bagged"] = _realmlp_bagged
    return {**ours, **alone, **several}


def read(folder: Path) -> pd.DataFrame:
    """Return the results so far, a row for each fit."""
    lines = [
        json.loads(line)
        for file in sorted(folder.glob("results*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return pd.DataFrame(
        lines,
        columns=["table", "split", "method", "kind", "classes", "rows", "error", "seconds"],
    )


BANDS = {
    "all": lambda row: True,
    "random": lambda row: row.kind == "random",
    "groups": lambda row: row.kind == "group",
    "time": lambda row: row.kind == "time",
    "numbers": lambda row: row.classes == 0,
    "classes": lambda row: row.classes > 0,
    "up to 1,000 rows": lambda row: row.rows <= 1000,
    "1,001 to 4,000 rows": lambda row: 1000 < row.rows <= 4000,
    "more rows": lambda row: row.rows > 4000,
}
"""Groups of tables in the summary: functions of a row of `read`."""


def averages(results: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return mean error and seconds by table and method, over splits that all methods have."""
    chosen = results[results.method.isin(methods)]
    counts = chosen.groupby(["table", "split"]).method.nunique()
    whole = counts[counts == len(methods)].index
    chosen = chosen.set_index(["table", "split"]).loc[lambda f: f.index.isin(whole)].reset_index()
    keys = ["table", "method", "kind", "classes"]
    return (
        chosen.groupby(keys)[["error", "seconds", "rows", "split"]]
        .agg({"error": "mean", "seconds": "mean", "rows": "mean", "split": "nunique"})
        .reset_index()
    )


def error_of(truth: np.ndarray, answer: np.ndarray) -> float:
    """Return the root mean squared error, or the log loss of probabilities (rows, classes)."""
    if answer.ndim == 1:
        return float(np.sqrt(np.mean((answer - truth.astype(float)) ** 2)))
    chances = np.clip(answer, 1e-7, 1)
    chances /= chances.sum(axis=1, keepdims=True)
    return float(log_loss(truth, chances, labels=range(chances.shape[1])))


def mean_errors(results: pd.DataFrame, methods: Sequence[str], folder: Path) -> pd.Series:
    """Return by table the error of the mean of all methods' predictions."""
    errors: dict[str, list[float]] = {}
    for (table, split), rows in results[results.method.isin(methods)].groupby(["table", "split"]):
        if rows.method.nunique() == len(methods):
            kept = [np.load(folder / f"{table}.{split}.{name}.npz") for name in methods]
            answer = np.mean([one["answer"] for one in kept], axis=0)
            errors.setdefault(table, []).append(error_of(kept[0]["truth"], answer))
    return pd.Series({table: np.mean(values) for table, values in errors.items()})


def geometric_mean(values: pd.Series) -> float:
    return float(np.exp(np.log(values).mean()))


def summary(
    results: pd.DataFrame, methods: Sequence[str], first: str, folder: Path
) -> Iterator[str]:
    """Yield ratios of the first method to each other, ranks and Elo, as Markdown.

    Two bounds follow: the mean of all methods' predictions (from `folder`), and the method that is
    best on the test rows of each table.
    """
    means = averages(results, methods)
    errors = means.pivot(index="table", columns="method", values="error")[list(methods)]
    seconds = means.pivot(index="table", columns="method", values="seconds")[list(methods)]
    about = means.drop_duplicates("table").set_index("table")
    ranks = errors.rank(axis=1)
    elo = elos(means)
    yield f"{len(errors)} tables, {int(about.split.sum())} splits\n"
    yield (f"| method | error of {first}, ratio | median | worst | best | rank | Elo | seconds |")
    yield "| --- |" + " --- |" * 7
    for name in methods:
        ratio = errors[first] / errors[name]
        yield (
            f"| {name} | {geometric_mean(ratio):.3f} | {ratio.median():.3f} | {ratio.max():.2f} "
            f"({ratio.idxmax()}) | {(ranks[name] == 1).sum()} | {ranks[name].mean():.2f} "
            f"| {elo.get(name, np.nan):.0f} | {geometric_mean(seconds[name]):.2f} |"
        )
    yield "\n| error over that of | " + " | ".join(methods) + " |"
    yield "| --- |" + " --- |" * len(methods)
    together = {"mean of all predictions": mean_errors(results, methods, folder)}
    together["best of all on each table"] = errors.min(axis=1)
    for title, values in together.items():
        cells = [f"{geometric_mean(values / errors[name]):.3f}" for name in methods]
        yield f"| {title} | " + " | ".join(cells) + " |"
    yield "\n| tables | count | " + " | ".join(methods[1:]) + " |"
    yield "| --- |" + " --- |" * len(methods)
    for band, belongs in BANDS.items():
        chosen = errors[[belongs(row) for row in about.loc[errors.index].itertuples()]]
        if len(chosen):
            cells = [f"{geometric_mean(chosen[first] / chosen[n]):.3f}" for n in methods[1:]]
            yield f"| {band} | {len(chosen)} | " + " | ".join(cells) + " |"
    yield "\n| table | split by | rows | " + " | ".join(methods) + " |"
    yield "| --- |" + " --- |" * (len(methods) + 2)
    for table, row in errors.iterrows():
        cells = [f"**{e:.4g}**" if e == row.min() else f"{e:.4g}" for e in row]
        facts = f"{about.kind[table]} | {about.rows[table]:,.0f}"
        yield f"| {table} | {facts} | " + " | ".join(cells) + " |"


def elos(means: pd.DataFrame) -> pd.Series:
    """Return the Elo rating of each method; two methods are compared on each table."""
    try:
        from bencheval.evaluator import BenchmarkEvaluator
    except ImportError:
        return pd.Series(dtype=float)
    frame = means.rename(columns={"table": "task", "error": "metric_error"})
    frame = frame[["method", "task", "metric_error"]]
    return BenchmarkEvaluator(columns_to_agg_extra=[]).compute_elo(frame)["elo"]


def run(table: Contest, split: int, name: str, method: Method, out: Path, label: str) -> None:
    """Fit a method on one split, and save its error and predictions."""
    problem, train, test = table.parts(split)
    start = time.process_time()
    try:
        answer = method(problem, train, test, split)
    except Exception as error:
        print(f"{problem.name}, {name}: {type(error).__name__}: {error}", flush=True)
        return
    seconds = time.process_time() - start
    truth = test[problem.target].to_numpy()
    truth = np.searchsorted(problem.classes, truth) if problem.classes else truth
    row = {
        "table": problem.name,
        "split": split,
        "method": name,
        "kind": table.kind,
        "classes": len(problem.classes),
        "rows": len(train),
        "error": error_of(truth, answer),
        "seconds": seconds,
    }
    np.savez_compressed(out / f"{problem.name}.{split}.{name}.npz", answer=answer, truth=truth)
    with (out / f"results{label}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def smoke() -> None:
    """Compare three methods on two shipped tables, one of them split by group."""
    known = contestants()
    with TemporaryDirectory() as name:
        for problem in shipped():
            groups = pd.Series(np.arange(len(problem.frame)) // 5, name="five")
            kind = "group" if problem.name == "diabetes" else "random"
            groups = groups if kind == "group" else None
            for method in ("mlpengine", "linear", "linear, bagged"):
                run(Contest(problem, kind, groups), 0, method, known[method], Path(name), "")
        results = read(Path(name))
        print("\n" + "\n".join(summary(results, list(results.method.unique()), OURS, Path(name))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--label", default="", help="suffix of the file of results to write")
    parser.add_argument("--half", choices=["choose", "report"])
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--show", action="store_true", help="fit nothing")
    parser.add_argument(
        "--smoke", action="store_true", help="two shipped tables, three methods, once"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.smoke:
        smoke()
        return
    if not args.folder or not args.results:
        parser.error("needs FOLDER and --results, or --smoke")
    known = contestants()
    names = args.methods or list(known)
    args.results.mkdir(parents=True, exist_ok=True)
    if not args.show:
        for split in range(args.splits):
            for table in contests(args.folder, args.half, args.tables):
                done = read(args.results)
                done = set(done[(done.table == table.problem.name) & (done.split == split)].method)
                for name in names:
                    if name not in done and split < table.splits:
                        run(table, split, name, known[name], args.results, args.label)
    results = read(args.results)
    names = [name for name in names if (results.method == name).any()]
    if args.tables:
        results = results[results.table.isin(args.tables)]
    if args.half:
        chosen = {one.problem.name for one in contests(args.folder, args.half, None)}
        results = results[results.table.isin(chosen)]
    first = OURS if OURS in names else names[0]
    print("\n" + "\n".join(summary(results, names, first, args.results)))


if __name__ == "__main__":
    restart_clean()
    main()
