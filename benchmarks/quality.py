"""How good the default model is, beside what people compare it with.

``python benchmarks/quality.py`` (extra ``quality``; ``--smoke`` for two small tables) splits each
table of `quality_tables` five times into 80 % to learn from and 20 % to predict, fits every method
of `quality_methods` with its defaults on one thread, and prints root mean squared error or log
loss, seconds, the ratios to each method (geometric means over tables) and the mean rank.

Seconds are of fitting and predicting in this process, after a first fit of another table that
imports all that a method needs; the commands of mlpengine are called here, too, and read and write
their files.  Programs that mlpengine compiles come from its cache where an earlier run has left
them there (``MLPENGINE_CACHE=$(mktemp -d)`` for an empty one).  With ``--processes`` seconds are of
new processes, from their start to predictions on disk: one for each of mlpengine's three commands,
one for every other method, which reads CSV, imports its library, fits, predicts and writes.  The
methods take turns on each split.  ``--against TREE`` compares what ``init``, ``train`` and
``predict`` of an older tree give, say of a release.

Results are kept in a file, a line each, so that a run that ends early goes on where it stopped.
"""

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path

ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ.update(ONE)  # before NumPy is imported

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from machine import restart_clean  # noqa: E402
from quality_methods import ABLATION, Method, ablation, methods, of_processes, of_trees  # noqa: E402
from quality_tables import Problem, linear_truths, problems  # noqa: E402
from sklearn.metrics import log_loss, roc_auc_score  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

Rows = list[dict[str, float]]
Results = dict[tuple[str, str], Rows]

WARM = "seconds in one process"
WHOLE = "seconds of processes"
"""The names of the two times of a method."""


def measure(problem: Problem, method: Method, split: int, clock: str = WARM) -> dict[str, float]:
    """Return the scores of a method on the held-out rows of one split, and its seconds."""
    labels = problem.frame[problem.target] if problem.is_classification else None
    train, test = train_test_split(
        problem.frame, test_size=0.2, random_state=split, stratify=labels
    )
    start = time.perf_counter()
    answer = method(problem, train.reset_index(drop=True), test.reset_index(drop=True), split)
    seconds = time.perf_counter() - start
    truth = test[problem.target].to_numpy()
    if not problem.is_classification:
        rmse = float(np.sqrt(np.mean((answer - truth) ** 2)))
        return {"error": rmse, "r2": 1 - rmse**2 / float(truth.var()), clock: seconds}
    numbers = np.searchsorted(problem.classes, truth)
    chances = np.clip(answer, 1e-7, 1)
    chances /= chances.sum(axis=1, keepdims=True)
    auc = roc_auc_score(
        numbers, chances[:, 1] if chances.shape[1] == 2 else chances, multi_class="ovr"
    )
    return {
        "error": log_loss(numbers, chances, labels=range(len(problem.classes))),
        "accuracy": float((chances.argmax(axis=1) == numbers).mean()),
        "auc": float(auc),
        clock: seconds,
    }


def read(path: Path) -> Results:
    """Return the results of a file by table and method, in the order of the splits."""
    results: Results = defaultdict(list)
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            results[row.pop("table"), row.pop("method")].append(row)
    return results


def warm_up(method: Method) -> None:
    """Fit a method once, so that all is imported that it needs."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "y"])
    method(Problem("warm-up", frame, "y", is_classification=False), frame, frame, 0)


def average(rows: Rows, key: str) -> float:
    """Return the mean error of splits, or their median seconds; NaN if they have none."""
    values = [row[key] for row in rows if key in row] or [np.nan]
    return float(np.mean(values) if key == "error" else np.median(values))


def table(results: Results, tables: list[str], names: list[str], key: str) -> list[str]:
    """Return a Markdown table of averages, and of how many splits if of fewer than others."""
    lines = ["| table | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for one in tables:
        counts = [sum(key in row for row in results[one, name]) for name in names]
        if not any(counts):
            continue
        averages = [average(results[one, name], key) for name in names]
        texts = ["-" if np.isnan(value) else f"{value:.4g}" for value in averages]
        texts[int(np.nanargmin(averages))] = f"**{texts[int(np.nanargmin(averages))]}**"
        cells = [
            f"{t} ({n})" if n < max(counts) and n else t for t, n in zip(texts, counts, strict=True)
        ]
        lines.append(f"| {one} | " + " | ".join(cells) + " |")
    return lines


def ratios(
    results: Results, tables: list[str], one: str, other: str, key: str = "error"
) -> np.ndarray:
    """Return the ratios of the averages of two methods, on the same splits of each table.

    A ratio is method `one` over method `other`.  Tables that either method lacks are left out.
    """
    pairs = [(results[name, one], results[name, other]) for name in tables]
    values = [
        average(mine[: len(theirs)], key) / average(theirs[: len(mine)], key)
        for mine, theirs in pairs
    ]
    return np.array([value for value in values if not np.isnan(value)])


def geometric_mean(values: np.ndarray) -> float:
    """Return the geometric mean; NaN of no values."""
    return float(np.exp(np.log(values).mean())) if len(values) else np.nan


def summary(results: Results, tables: list[str], names: list[str], clock: str) -> list[str]:
    """Return ratios of the first method's errors to each other's, wins and times, as Markdown.

    Ratios are geometric means over the tables that both methods have; ranks are computed on the
    tables that all methods have.
    """
    whole = [one for one in tables if all(results[one, name] for name in names)]
    means = np.array([[average(results[one, name], "error") for name in names] for one in whole])
    means = means.reshape(-1, len(names))
    ranks = (means[:, :, None] > means[:, None, :]).sum(axis=2) + 1
    lines = [
        f"| method | tables | error of {names[0]}, ratio | worst | no worse on "
        f"| {clock}, ratio | mean rank on {len(whole)} |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for i, name in enumerate(names):
        error = ratios(results, tables, names[0], name)
        if not len(error):
            continue
        seconds = geometric_mean(ratios(results, tables, names[0], name, clock))
        time_ratio = "-" if np.isnan(seconds) else f"{seconds:.2f}"
        rank = f"{ranks[:, i].mean():.2f}" if whole else "-"
        lines.append(
            f"| {name} | {len(error)} | {geometric_mean(error):.3f} | {error.max():.2f} "
            f"| {(error <= 1).sum()} | {time_ratio} | {rank} |"
        )
    return lines


def costs(results: Results, chosen: list[Problem]) -> list[str]:
    """Return the cost of leaving out each ingredient of the recipe, ours beside the published.

    The cost is the geometric mean over tables.  In brackets is the number of tables on which the
    recipe without the ingredient is worse.
    """

    def cost(name: str, tables: list[str]) -> str:
        errors = ratios(results, tables, f"no {name}", "realmlp")
        if not len(errors):
            return "-"
        worse = f"worse on {(errors > 1).sum()} of {len(errors)}"
        return f"{100 * (geometric_mean(errors) - 1):+.1f} ({worse})"

    classes = [one.name for one in chosen if one.is_classification]
    numbers = [one.name for one in chosen if not one.is_classification]
    lines = [
        "| left out | classes, % | published | numbers, % | published |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (_, published) in ABLATION.items():
        of_classes, of_numbers = ("-" if p is None else f"{p:+.1f}" for p in published)
        ours = cost(name, classes), cost(name, numbers)
        lines.append(f"| {name} | {ours[0]} | {of_classes} | {ours[1]} | {of_numbers} |")
    return lines


def spreads(results: Results, tables: list[str]) -> list[str]:
    """Return a Markdown table of means and deviations over splits, of the older tree and of this.

    The difference of errors has its standard error; *better on* counts splits.
    """
    titles = ["table", "splits", "score before", "now", "error before", "now", "difference"]
    lines = ["| " + " | ".join([*titles, "better on"]) + " |", "|" + " --- |" * 8]
    for one in tables:
        pairs = list(zip(results[one, "before"], results[one, "mlpengine"], strict=False))
        if len(pairs) < 2:
            continue
        cells = [one, str(len(pairs))]
        for key in ("r2" if "r2" in pairs[0][0] else "accuracy", "error"):
            for rows in zip(*pairs, strict=True):
                values = [row[key] for row in rows]
                cells.append(f"{np.mean(values):.4g} +- {np.std(values, ddof=1):.2g}")
        change = np.array([now["error"] - before["error"] for before, now in pairs])
        noise = change.std(ddof=1) / len(change) ** 0.5
        cells += [f"{change.mean():.2g} +- {noise:.2g}", str(np.count_nonzero(change < 0))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two tables, three methods, once")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tables", nargs="*", help="names of tables; all by default")
    parser.add_argument("--methods", nargs="*", help="names of methods; all by default")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--ablation", action="store_true", help="the realmlp preset without each of its parts"
    )
    kind.add_argument("--against", type=Path, metavar="TREE", help="this tree against an older one")
    kind.add_argument(
        "--processes", action="store_true", help="time whole processes, from their start"
    )
    parser.add_argument(
        "--linear", action="store_true", help="generated tables that are linear, in place of all"
    )
    parser.add_argument("--results", type=Path, help="file of results to write and go on with")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    args = parser.parse_args()
    known = methods()
    if args.ablation:
        known = ablation()
    elif args.against:
        known = of_trees(args.against)
    elif args.processes:
        known = of_processes()
    clock = WHOLE if args.processes or args.against else WARM
    names = args.methods or list(known)
    tables_of = linear_truths if args.linear else problems
    chosen = [one for one in tables_of() if not args.tables or one.name in args.tables]
    if args.smoke:
        names = ["mlpengine", "linear", "HistGradientBoosting"]
        chosen = [one for one in chosen if one.name in ("penguins", "hull")]
        args.splits = 1
    results = read(args.results) if args.results else defaultdict(list)
    warnings.simplefilter("ignore")  # of other libraries, about their own defaults
    warm = set(known) if clock == WHOLE else set()
    for problem in [] if args.show else chosen:
        for split in range(args.splits):
            for name in names:
                if len(results[problem.name, name]) > split:
                    continue
                if name not in warm:
                    warm_up(known[name])
                    warm.add(name)
                row = measure(problem, known[name], split, clock)
                results[problem.name, name].append(row)
                line = json.dumps({"table": problem.name, "method": name, **row})
                if args.results:
                    with args.results.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
                print(line, flush=True)
    tables = [one.name for one in chosen]
    if args.ablation:
        print("\n" + "\n".join(costs(results, chosen)))
        return
    if args.against:
        print("\n" + "\n".join(spreads(results, tables)))
        return
    print("\n" + "\n".join(table(results, tables, names, "error")))
    print(f"\n{clock.capitalize()}:\n\n" + "\n".join(table(results, tables, names, clock)))
    print("\n" + "\n".join(summary(results, tables, names, clock)))


if __name__ == "__main__":
    restart_clean()
    main()
