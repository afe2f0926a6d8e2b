"""Reading, profiles and predictions of tables as people have them."""

import csv
import json
from io import StringIO

import numpy as np
import pytest
from odd_tables import ODD

from mlpengine import load

QUICK = ("training.epochs=2", "training.folds=null", "report=false", "diagnostics=false")


@pytest.mark.parametrize("name", [name for name, odd in ODD.items() if odd.row])
def test_an_odd_table_from_init_to_predictions(name, mlpengine, tmp_path):
    """A row in Python's form is predicted as the same row in a file like the training table."""
    odd = ODD[name]
    (tmp_path / "odd.csv").write_bytes(odd.content)
    for command in (("init", "odd.csv", "--target", "y"), ("check", "odd.yaml")):
        assert mlpengine(*command).code == 0
    assert mlpengine("train", "odd.yaml", "-o", "run", settings=QUICK).code == 0
    model = load("run")
    told = json.loads(mlpengine("predict", "run", "odd.csv", "-o", "p.npy", "--json").out)
    assert (tuple(told["shape"]), "columns" in told) == (np.load("p.npy").shape, False)
    np.testing.assert_array_equal(np.load("p.npy")[:, 0], model.predict("odd.csv"))
    reading, file = model.preprocessor.options.reading, StringIO()
    mark = reading.decimal or "."
    row = {c: str(v).replace(".", mark) if isinstance(v, float) else v for c, v in odd.row.items()}
    csv.writer(file, delimiter=reading.delimiter or ",").writerows([row, row.values()])
    (tmp_path / "new.csv").write_bytes(file.getvalue().encode(reading.text_encoding))
    (predicted,) = json.loads(mlpengine("predict", "run", "new.csv", "--json").out)["predictions"]
    np.testing.assert_allclose(predicted["y"], model.predict(odd.row)[0], rtol=1e-4)


def test_a_text_that_is_not_in_the_encoding_is_refused(mlpengine, tmp_path, caplog):
    (tmp_path / "odd.csv").write_bytes(ODD["Windows text"].content)
    (tmp_path / "c.yaml").write_text("data: {source: odd.csv, target: y, text_encoding: utf-32}\n")
    answer = mlpengine("check", "c.yaml")
    assert answer.code == 2
    assert "odd.csv: text_encoding: the file is not utf-32" in answer.err
    (tmp_path / "c.yaml").write_text("data: {source: odd.csv, target: y}\n")
    assert "set data.text_encoding: cp1252" in mlpengine("check", "c.yaml").err
    (tmp_path / "odd.csv").write_text("ä,y\n" + "1,2\n2,3\n" * 9, encoding="utf-8")
    assert mlpengine("check", "c.yaml", settings=["data.text_encoding=cp1252"]).code == 0
    assert caplog.text.count("its bytes are UTF-8") == 1


def test_predict_reads_the_columns_of_the_model(mlpengine, tmp_path):
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
