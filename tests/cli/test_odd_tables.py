"""What `init`, `check`, `train`, `predict` and `load` say about tables as people have them."""

import csv
import json
from io import StringIO

import numpy as np
import pytest
from odd_tables import ODD

from mlpengine import fit, load
from mlpengine.config import load_config
from mlpengine.config.sections import plain

QUICK = ("training.epochs=2", "training.folds=null", "report=false", "diagnostics=false")


@pytest.mark.parametrize("name", ODD)
def test_an_odd_table_from_init_to_predictions(name, mlpengine, tmp_path):
    odd = ODD[name]
    (tmp_path / "odd.csv").write_bytes(odd.content)
    made = mlpengine("init", "odd.csv", "--target", odd.target)
    if odd.refused:
        assert made.code == 2
        assert odd.refused in made.err
        assert not (tmp_path / "odd.yaml").exists()
        return
    assert made.code == 0, made.err
    config = (tmp_path / "odd.yaml").read_text(encoding="utf-8")
    for text in odd.config:
        assert f"  {text}" in config, config
    for text in odd.init:
        assert text in made.err
    checked = mlpengine("check", "odd.yaml")
    assert checked.code == 0, checked.err
    for text in odd.check:
        assert text in checked.out
    printed = dict(line.split()[:2] for line in checked.out.splitlines() if line.startswith("  "))
    assert {name: printed[name] for name in odd.kinds} == odd.kinds
    trained = mlpengine("train", "odd.yaml", "-o", "run", settings=QUICK)
    assert trained.code == 0, trained.err
    for text in odd.train:
        assert text in trained.err + trained.out
    model = load("run")
    assert mlpengine("predict", "run", "odd.csv", "-o", "p.npy").code == 0
    np.testing.assert_array_equal(np.load("p.npy")[:, 0], model.predict("odd.csv"))
    check_one_row(odd, model, mlpengine, tmp_path)


def check_one_row(odd, model, mlpengine, tmp_path):
    """A row in Python's form is predicted as the same row in a file like that of training."""
    row = {name: odd.row[name] for name in model.columns}
    reading = model.preprocessor.options.reading
    cells = StringIO()
    writer = csv.writer(cells, delimiter=reading.delimiter or ",")
    writer.writerow(row)
    mark = reading.decimal or "."
    writer.writerow(
        [str(c).replace(".", mark) if isinstance(c, float) else c for c in row.values()]
    )
    (tmp_path / "new.csv").write_bytes(cells.getvalue().encode(reading.text_encoding))
    answer = mlpengine("predict", "run", "new.csv", "--json")
    assert answer.code == 0, answer.err
    for text in odd.predict:
        assert text in answer.err
    (predicted,) = json.loads(answer.out)["predictions"]
    np.testing.assert_allclose(predicted[odd.target], model.predict(row)[0], rtol=1e-4)


def test_fit_reads_an_odd_table_as_train_does(tmp_path, mlpengine):
    odd = ODD["decimal commas and points between thousands"]
    (tmp_path / "odd.csv").write_bytes(odd.content)
    mlpengine("init", "odd.csv", "--target", "y")
    mlpengine("train", "odd.yaml", "-o", "run", settings=QUICK)
    keys = plain(load_config("odd.yaml").config)
    for unused in ("name", "report", "diagnostics"):
        keys.pop(unused)
    keys["training"] |= {"epochs": 2, "folds": None}
    model, _ = fit("odd.csv", **keys)
    assert (model.mlp.params.flat == load("run").mlp.params.flat).all()
    rows = list(csv.DictReader(odd.content.decode().splitlines(), delimiter=";"))
    again, _ = fit(rows, **keys)
    assert (again.mlp.params.flat == model.mlp.params.flat).all()


WRONG_KEYS = {
    "decimal: '_'": "data.decimal: must be",
    "thousands: ','\n  decimal: ','": "data.thousands: must differ from decimal",
    "text_encoding: utf-9": "data.text_encoding: must be one that Python knows",
    "date_format: yyyymmdd": "data.date_format: needs yyyy, mm and dd",
    "date_format: {a: yyyymmdd}": "data.date_format: needs yyyy, mm and dd",
    "date_format: {aa: mm/dd/yyyy}": "odd.csv has no column 'aa' - did you mean 'a'?",
    "date_format: [a]": "data.date_format: must be text or a mapping of keys (got ['a'])",
    "date_format: {a: 3}": "data.date_format.a: must be text (got 3)",
    "delimiter: ':'": "data.delimiter: must be",
}


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_wrong_spellings_are_named(key, mlpengine, tmp_path):
    (tmp_path / "odd.csv").write_bytes(ODD["tabs"].content)
    (tmp_path / "c.yaml").write_text(f"data:\n  source: odd.csv\n  target: y\n  {key}\n")
    answer = mlpengine("check", "c.yaml")
    assert answer.code == 2
    assert WRONG_KEYS[key] in answer.err
    assert "c.yaml:" in answer.err


def test_a_text_that_is_not_in_the_encoding_is_refused(mlpengine, tmp_path):
    (tmp_path / "odd.csv").write_bytes(ODD["Windows text"].content)
    (tmp_path / "c.yaml").write_text("data: {source: odd.csv, target: y, text_encoding: utf-32}\n")
    answer = mlpengine("check", "c.yaml")
    assert answer.code == 2
    assert "odd.csv: text_encoding: the file is not utf-32" in answer.err
    (tmp_path / "c.yaml").write_text("data: {source: odd.csv, target: y}\n")
    assert "or set data.text_encoding: cp1252" in mlpengine("check", "c.yaml").err


def test_a_nameless_column_that_does_not_count_is_refused(mlpengine, tmp_path):
    (tmp_path / "t.csv").write_text(",a,y\n5,1,2\n3,4,5\n")
    answer = mlpengine("init", "t.csv", "--target", "y")
    assert answer.code == 2
    assert "column 1 has no name; name it or delete it" in answer.err


def test_predict_reads_the_columns_of_the_model(mlpengine, tmp_path):
    """Before, a cell of another column that can be read in two ways ended it."""
    lines = [f"{i},{i % 5},{i % 3}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    (tmp_path / "c.yaml").write_text(
        "data: {source: t.csv, target: y, where: b < 4}\ntraining: {epochs: 1}\nreport: false\n"
    )
    assert mlpengine("train", "c.yaml", "-q", "-o", "run").code == 0
    wider = [f'"{i},234",{line},n{i}' for i, line in enumerate(lines, 1)]
    (tmp_path / "wide.csv").write_text("\n".join(["other,a,b,y,name", *wider]) + "\n")
    for given in ((), ("--id", "name")):
        plain = mlpengine("predict", "run", "t.csv")
        wide = mlpengine("predict", "run", "wide.csv", *given)
        assert (plain.code, wide.code) == (0, 0), wide.err
        rows, others = ([r.split(",") for r in ran.out.splitlines()] for ran in (plain, wide))
        assert [row[1:] for row in rows] == [row[1:] for row in others]
        assert others[1][0] == ("n1" if given else "2")
    (tmp_path / "short.csv").write_text("other,aa,b\n1.5,2,3\n")
    ran = mlpengine("predict", "run", "short.csv")
    assert (ran.code, "'a'" in ran.err) == (2, True)
