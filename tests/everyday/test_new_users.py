"""The first hour of four kinds of user, mistakes included."""

import csv
import json
import threading

import numpy as np
import pandas as pd
import pytest

import mlpengine
from mlpengine.models import metrics

G = np.random.default_rng(11)
CITIES = ("Ulm", "Bonn", "Jena")


@pytest.fixture
def flats(tmp_path, monkeypatch):
    """A table as a German spreadsheet writes it, in the working directory."""
    monkeypatch.chdir(tmp_path)
    lines = ["Fläche;Zimmer;Ort;Baujahr;Miete"]
    for i in range(160):
        area, rooms = 30 + G.random() * 90, int(G.integers(1, 5))
        rent = 200 + 9.5 * area + 40 * rooms + 100 * (i % 3)
        cells = (f"{area:.1f}", rooms, CITIES[i % 3], "-" if i % 40 == 3 else 1950 + i % 70)
        lines.append(";".join(map(str, (*cells, f"{rent:.2f}"))).replace(".", ","))
    (tmp_path / "mieten.csv").write_text("\n".join(lines) + "\n", encoding="cp1252")
    return tmp_path


def run(capsys, *args):
    from mlpengine_cli.main import run as command

    code = command(list(map(str, args)))
    out, err = capsys.readouterr()
    return code, out, err


def test_an_analyst_at_the_command_line(flats, capsys):
    code, _, err = run(capsys, "init", "mieten.csv")
    assert code == 2
    assert "say what to predict with --target COL (the columns are Fläche, Zimmer" in err
    code, _, err = run(capsys, "init", "mieten.csv", "--target", "Meite")
    assert code == 2
    assert "did you mean 'Miete'?" in err
    code, _, err = run(capsys, "init", "mieten.csv", "--target", "Miete")
    assert code == 0
    assert "column 'Baujahr': 4 cells with '-' read as missing" in err
    assert "read as cp1252" in err
    code, _, err = run(capsys, "train", "mieten.yaml", "--set", "model.hiden=[8]", "-q")
    assert code == 2
    assert "model.hiden: unknown key - did you mean 'hidden'?" in err
    settings = ("training.epochs=60", "training.folds=null", "report=false", "diagnostics=false")
    quick = ("-q", "--json", *(word for text in settings for word in ("--set", text)))
    code, out, _ = run(capsys, "train", "mieten.yaml", *quick)
    assert code == 0
    assert json.loads(out)["test"]["r2"] > 0.8
    new = "Ort;Fläche;Zimmer;Baujahr\nUlm;50,5;2;1999\nKöln;80,0;3;-\n"
    (flats / "neu.csv").write_text(new, encoding="cp1252")
    code, _, err = run(capsys, "predict", "runs/mieten", "neu.csv", "-o", "out.csv")
    assert code == 0
    assert "column 'Ort': 1 row with a text that has no feature of its own, such as 'Köln'" in err
    written = (flats / "out.csv").read_text().splitlines()
    rents = [float(row["Miete"]) for row in csv.DictReader(written)]
    assert 500 < rents[0] < rents[1] < 1600


def test_a_scikit_learn_user(flats):
    from sklearn.compose import make_column_transformer
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from mlpengine.estimators import MlpRegressor

    frame = pd.read_csv("mieten.csv", sep=";", decimal=",", encoding="cp1252", na_values="-")
    x, y = frame.drop(columns="Miete"), frame.Miete
    with pytest.raises(ValueError, match=r"column .Ort. has .Ulm."):
        MlpRegressor(epochs=2).fit(x, y)
    with pytest.raises(ValueError, match="NaN"):
        MlpRegressor(epochs=2).fit(x.drop(columns="Ort"), y)
    encoder = make_column_transformer(
        (OneHotEncoder(), ["Ort"]), ("passthrough", ["Fläche", "Zimmer"])
    )
    with pytest.raises(mlpengine.errors.UsageError, match="schedule: must be one of constant"):
        make_pipeline(encoder, MlpRegressor(schedule="cos")).fit(x, y)
    model = make_pipeline(
        encoder, MlpRegressor(hidden=16, lr=1e-2, epochs=60, schedule="cosine", random_state=0)
    )
    assert cross_val_score(model, x, y, cv=3).min() > 0.9


def test_an_app_developer(flats):
    frame = pd.read_csv("mieten.csv", sep=";", decimal=",", encoding="cp1252", na_values="-")
    with pytest.raises(mlpengine.errors.ConfigError, match=r"fit: training.epoch: unknown key"):
        mlpengine.fit(frame, target="Miete", training={"epoch": 5})
    model, result = mlpengine.fit(
        frame,
        target="Miete",
        training={"epochs": 60, "batch_size": 16},
        optimizer={"name": "adam", "lr": 1e-2},
    )
    assert result.metrics["test"]["r2"] > 0.8
    model.save("app.safetensors")
    with pytest.raises(mlpengine.errors.UsageError, match="did you mean"):
        mlpengine.load("ap.safetensors")
    served = mlpengine.load("app.safetensors")
    row = {"Fläche": 50.5, "Zimmer": 2, "Ort": "Ulm", "Baujahr": None}
    with pytest.raises(mlpengine.errors.DataError, match="'Zimmer' \\(did you mean 'zimmer'\\?\\)"):
        served.predict({"zimmer" if name == "Zimmer" else name: c for name, c in row.items()})
    with pytest.raises(mlpengine.errors.DataError, match="column 'Zimmer': a number is needed"):
        served.predict(row | {"Zimmer": "two"})
    with pytest.raises(mlpengine.errors.UsageError, match="a model of classes is needed"):
        served.predict_proba(row)
    expected = served.predict(row)
    answers = [None] * 4

    def serve(number):
        answers[number] = [served.predict(row)[0] for _ in range(50)]

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((np.array(each) == expected).all() for each in answers)


def test_a_researcher():
    from mlpengine import Adam, Callback, EarlyStopping, Loop, Mlp, TrainingStep
    from mlpengine.features import NumberTarget
    from mlpengine.formula import maximum
    from mlpengine.models.task import Regression, Split
    from mlpengine.ops import REGISTRY, EntryLoss

    class Hinged(EntryLoss, name="hinged_in_test"):
        """An error below a tenth costs nothing."""

        def formula(self, y, t):
            return maximum(abs(y - t) - 0.1, 0)

    with pytest.raises(mlpengine.errors.UsageError, match="Callback has no hook 'on_epoch_end'"):

        class Wrong(Callback):
            def on_epoch_end(self, loop, row): ...

    class Norms(Callback):
        """Keeps the norm of the gradient after each epoch."""

        def __init__(self):
            self.norms = []

        def on_train_epoch_end(self, loop, row):
            self.norms.append(loop.step.grad_norm)

    @mlpengine.metric(of="numbers")
    def worst_in_test(target, predicted, weight=None):
        return float(np.abs(target - predicted).max())

    x = G.standard_normal((400, 3)).astype("f4")
    y = np.sin(x[:, :1]).astype("f4")
    mlp = Mlp([3, 32, 32, 1], activation="tanh", seed=0)
    with pytest.raises(mlpengine.errors.UsageError, match="layers count from 0 to 2"):
        mlp.freeze([3])
    mlp.freeze([0])
    first = mlp.weights[0].copy()
    step = TrainingStep(mlp, Hinged(), Adam(mlp, lr=1e-2), batch_size=50)
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    with pytest.raises(mlpengine.errors.UsageError, match="did you mean 'worst_in_test'"):
        task.watch("worst_in_tests")
    task.watch("worst_in_test")
    train, held = (Split(x[r], y[r], y[r].astype("f8")) for r in (slice(300), slice(300, 400)))
    norms = Norms()
    rule = EarlyStopping(patience=5, monitor="worst_in_test")
    result = Loop(step, task, train, held, epochs=60, early_stopping=rule, callbacks=[norms]).run()
    first_row, *_, last_row = result.history.rows
    assert last_row.validation["worst_in_test"] < 0.5 * first_row.validation["worst_in_test"]
    assert len(norms.norms) == result.epochs
    assert (mlp.weights[0] == first).all()
    assert np.abs(mlp.predict(x[300:]) - y[300:]).mean() < 0.1
    del metrics.OWN_METRICS["worst_in_test"], REGISTRY["hinged_in_test"]
