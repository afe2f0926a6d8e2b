"""Sets of classes for 90 %: how many true classes they hold, and how large they are.

``python benchmarks/class_sets.py FOLDER`` (extra ``quality``; ``--smoke`` for one shipped table)
takes the tables with classes of a folder as ``benchmarks/arena.py`` does, one split each, with
``--half`` and ``--tables`` as there.  Beside ``predict --set 0.9`` of the default model are
LightGBM's probabilities with MAPIE (where ``mapie`` is installed): eight folds, too, with the
threshold ("LAC") and, of three classes or more, the adaptive score ("APS").
"""

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from arena import FOLDS, Contest, contests
from quality_methods import in_this_process
from quality_tables import Problem, problems

LEVEL = 0.9


def ours(problem: Problem, train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Return which classes are in the sets of ``predict --set``, bool (rows, classes)."""
    run = in_this_process
    with tempfile.TemporaryDirectory() as folder:
        names = ("train.csv", "test.csv", "config.yaml", "run", "sets.npy")
        rows, new, config, trained, sets = (str(Path(folder, name)) for name in names)
        train.to_csv(rows, index=False)
        test.drop(columns=problem.target).to_csv(new, index=False)
        settings = ("training.threads=1", "data.split.test=0", "report=false")
        options = [word for setting in settings for word in ("--set", setting)]
        run(["init", rows, "--target", problem.target, "-o", config])
        run(["train", config, "-q", "--out", trained, *options])
        run(["predict", trained, new, "--set", str(LEVEL), "-o", sets])
        return np.load(sets)[:, len(problem.classes) :] > 0


def of_mapie(problem: Problem, train: pd.DataFrame, test: pd.DataFrame, score: str) -> np.ndarray:
    """Return the sets of LightGBM with a score of MAPIE, bool (rows, classes)."""
    from lightgbm import LGBMClassifier
    from mapie.classification import CrossConformalClassifier

    x = pd.concat([train, test]).drop(columns=problem.target)
    for name in x.select_dtypes(exclude="number"):
        x[name] = pd.Categorical(x[name]).codes
    y = np.searchsorted(problem.classes, train[problem.target])
    model = CrossConformalClassifier(
        LGBMClassifier(random_state=0, n_jobs=1, verbose=-1),
        confidence_level=LEVEL,
        conformity_score=score,
        cv=FOLDS,
        random_state=0,
    )
    features = x.to_numpy(float)
    return model.fit_conformalize(features[: len(y)], y).predict_set(features[len(y) :])[1][:, :, 0]


def measured(table: Contest) -> Iterator[tuple[str, float, float]]:
    """Yield name, share of true classes inside, and mean size of each kind of sets."""
    problem, (train, test) = table.problem, table.parts(0)
    truth = np.searchsorted(problem.classes, test[problem.target])
    sets = {"mlpengine": ours(problem, train, test)}
    if find_spec("mapie") and find_spec("lightgbm"):
        for score in ("lac", "aps")[: 2 if len(problem.classes) > 2 else 1]:
            sets[f"LightGBM, MAPIE {score}"] = of_mapie(problem, train, test, score)
    for name, held in sets.items():
        yield name, held[np.arange(len(truth)), truth].mean(), held.sum(axis=1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--half", choices=["choose", "report"])
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--smoke", action="store_true", help="one shipped table")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.smoke:
        tables = iter([Contest(next(p for p in problems() if p.name == "penguins"), "random")])
    elif args.folder:
        tables = contests(args.folder, args.half, args.tables)
    else:
        parser.error("needs FOLDER, or --smoke")
    rows = []
    print("| table | classes | sets | inside | mean size |\n| --- | --- | --- | --- | --- |")
    for table in tables:
        if not table.problem.is_classification:
            continue
        for name, inside, size in measured(table):
            about = f"{table.problem.name} | {len(table.problem.classes)}"
            print(f"| {about} | {name} | {inside:.3f} | {size:.3f} |", flush=True)
            rows.append((name, inside, size))
    for name, mean in pd.DataFrame(rows).groupby(0).mean().iterrows():
        print(f"| mean | | {name} | {mean[1]:.3f} | {mean[2]:.3f} |")


if __name__ == "__main__":
    main()
