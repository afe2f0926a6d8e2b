"""How much of the gain of a mean of networks, or of CatBoost, one small student keeps.

``python benchmarks/distill.py FOLDER`` (extra ``quality``; ``--smoke`` in place of FOLDER for two
shipped tables) reads the tables that FOLDER's ``tables.json`` lists, as ``arena.py`` does, and
takes the first split of each: 80 % to learn from and 20 % to predict.  The teacher is what
``mlpengine.fit`` trains by default, a mean of up to 16 networks; *one network* is the same recipe
without folds; the student is ``mlpengine.distill`` with its defaults, 64-64 units, of which
``--seeds`` are trained, and their errors averaged.  With ``--teacher catboost`` the teacher is
CatBoost with its defaults, and one network is as before.

It prints root mean squared errors or log losses, and what the student keeps: the logarithm of one
network's error over the student's, as a share of that over the teacher's.  The last lines are the
geometric means over the tables on which the teacher gains more than 2 %, and how often new numbers
lie in the intervals of 90 %.
"""

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ.update(ONE)  # before NumPy is imported

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from arena import Contest, contests, scores  # noqa: E402
from quality_tables import Problem, problems  # noqa: E402

import mlpengine  # noqa: E402
from mlpengine import Model  # noqa: E402

CHOSEN = [
    "computer_prices",
    "ev_charging",
    "fifa_value",
    "german_credit",
    "kershaw_pitches",
    "libras",
    "optdigits_full",
    "pendigits",
    "pima",
    "rain_innsbruck",
    "sacramento_housing",
]
"""Small tables that chose the recipe of students."""

OTHERS = [
    "attrition",
    "beps_vote",
    "concrete",
    "contraceptive_method",
    "orange_juice",
    "phoneme",
    "psid_wage",
    "sa_heart",
    "satellite",
    "slid_wages",
    "yogurt_choice",
]
"""Small tables on which nothing was chosen."""

LEAST_GAIN = 1.02
"""Ratio of errors from which the gain of a teacher counts."""


def answers(model: Model, problem: Problem, rows: pd.DataFrame) -> np.ndarray:
    """Return numbers, or probabilities in the order of the problem's classes."""
    if not problem.is_classification:
        return model.predict(rows)
    chances = dict(zip(map(str, model.classes), model.predict_proba(rows).T, strict=True))
    return np.stack([chances[str(label)] for label in problem.classes], axis=1)


def catboost(problem: Problem, train: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """Fit CatBoost with its defaults; return what predicts a table."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    x = train.drop(columns=problem.target)
    texts = list(x.select_dtypes(exclude="number").columns)

    def plain(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(**{t: rows[t].astype("object").fillna("missing") for t in texts})

    options: dict[str, Any] = {"verbose": 0, "thread_count": 1, "cat_features": texts}
    options |= {"random_seed": 0, "allow_writing_files": False}
    if problem.is_classification:
        model = CatBoostClassifier(**options).fit(plain(x), train[problem.target].astype(str))
        order = np.argsort([str(one) for one in model.classes_])
        return lambda rows: model.predict_proba(plain(rows))[:, order]
    model = CatBoostRegressor(**options).fit(plain(x), train[problem.target])
    return lambda rows: model.predict(plain(rows))


def measure(table: Contest, kind: str, seeds: int) -> dict[str, Any]:
    """Return the errors of one network, teacher and students on a table.

    The error of students is the geometric mean of the errors of the students.
    """
    problem, train, test = table.parts(0)
    rows, truth = test.drop(columns=problem.target), test[problem.target].to_numpy()
    common: dict[str, Any] = {"training": {"threads": 1}}

    def error(answer: np.ndarray) -> float:
        return scores(problem, truth, answer)["error"]

    alone = {"training": {"threads": 1, "folds": None}}
    split = {"data": {"split": {"test": 0.0, "validation": 0.2}}}
    one, _ = mlpengine.fit(train, problem.target, **alone, **split)
    all_rows = {"data": {"split": {"test": 0.0}}}
    if kind == "catboost":
        predict: Any = catboost(problem, train)
        taught = error(predict(rows))
    else:
        predict, _ = mlpengine.fit(train, problem.target, **common, **all_rows)
        taught = error(answers(predict, problem, rows))
    errors, covered = [], []
    for seed in range(seeds):
        options = {**common, **all_rows, "seed": seed}
        student, _ = mlpengine.distill(train, problem.target, predict=predict, **options)
        errors.append(error(answers(student, problem, rows)))
        if not problem.is_classification and student.residuals is not None:
            low, high = student.predict_interval(rows, 0.9)
            covered.append(np.mean((truth >= low) & (truth <= high)))
    return {
        "table": problem.name,
        "rows": len(train),
        "one": error(answers(one, problem, rows)),
        "teacher": taught,
        "student": float(np.exp(np.log(errors).mean())),
        "covered": float(np.mean(covered)) if covered else np.nan,
        "parameters": student.parameters,
    }


def report(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table and its summary as Markdown."""
    yield "| table | rows | one network | teacher | student | teacher gains | student keeps |"
    yield "| --- |" + " --- |" * 6
    frame = pd.DataFrame(results)
    frame["gain"] = np.log(frame.one / frame.teacher)
    frame["kept"] = np.log(frame.one / frame.student)
    for row in frame.itertuples():
        counts = row.gain > np.log(LEAST_GAIN)
        share = f"{row.kept / row.gain:.0%}" if counts else ""
        errors = " | ".join(f"{value:.4g}" for value in (row.one, row.teacher, row.student))
        yield f"| {row.table} | {row.rows:,} | {errors} | {np.exp(row.gain) - 1:.1%} | {share} |"
    yield ""
    gains = frame[frame.gain > np.log(LEAST_GAIN)]
    for title, names in (("tables that chose", CHOSEN), ("other tables", OTHERS), ("tables", None)):
        some = gains if names is None else gains[gains.table.isin(names)]
        if len(some):
            kept, gain = some.kept.mean(), some.gain.mean()
            yield (
                f"{len(some)} {title}: the teacher is {np.exp(gain):.3f} times as good as one "
                f"network, the student {np.exp(kept):.3f} times; it keeps {kept / gain:.0%}"
            )
    if frame.covered.notna().any():
        yield f"intervals of 90 % hold {frame.covered.mean():.1%} of new numbers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--teacher", choices=["mean", "catboost"], default="mean")
    parser.add_argument("--seeds", type=int, default=3, help="students of each table")
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN, *OTHERS])
    parser.add_argument("--results", type=Path, help="file of results, a line for each table")
    parser.add_argument("--smoke", action="store_true", help="two shipped tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.smoke:
        shipped = [p for p in problems() if p.name in ("diabetes", "penguins")]
        tables: Any = [Contest(problem, "random") for problem in shipped]
    elif args.folder:
        tables = contests(args.folder, None, args.tables)
    else:
        parser.error("needs FOLDER, or --smoke")
    known = []
    if args.results and args.results.exists():
        known = [json.loads(line) for line in args.results.read_text(encoding="utf-8").splitlines()]
    for table in tables:
        if table.problem.name in {row["table"] for row in known}:
            continue
        known.append(measure(table, args.teacher, 1 if args.smoke else args.seeds))
        if args.results:
            with args.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[-1]) + "\n")
    print("\n".join(report(known)))


if __name__ == "__main__":
    main()
