"""Transfer sets: what a student learns, and errors of new rows, against formulas."""

import numpy as np
import pytest

from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import read_table
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.task import make_split, task_for
from mlpengine.ops import MeanSquaredError, SoftmaxCrossEntropy
from mlpengine.training.transfer import CALIBRATION_ROWS, TransferSet

CASES = {"penguins": SoftmaxCrossEntropy(), "diabetes": MeanSquaredError()}


def rows_of(name):
    table = read_table(name)
    target = {"penguins": "species", "diabetes": "progression"}[name]
    fitted = Preprocessor(target=target).fit(table)
    task = task_for(fitted.target, CASES[name])
    return table, fitted, task, make_split(table, None, fitted, task, np.dtype("float32"))


def label_of(train, classes):
    """Return a teacher that knows the number of the base row of each row."""

    def label(synthetic):
        base = np.arange(len(train)) if synthetic is None else synthetic.base
        if not classes:
            return base[:, None] * 1.0, base[:, None] * 1.0
        chances = np.full((len(base), 3), 0.2)
        chances[np.arange(len(base)), base % 3] = 0.6
        return chances, chances

    return label


def transfer_of(name, *, made=50, errors=None):
    table, fitted, task, train = rows_of(name)
    label = label_of(train, name == "penguins")
    transfer = TransferSet.of(fitted, train, label, made=made, seed=1, errors=errors)
    return (table, fitted, task, train), transfer


@pytest.mark.parametrize("name", CASES)
def test_a_student_learns_training_rows_and_made_rows_as_labeled(name, tmp_path):
    (table, fitted, task, train), transfer = transfer_of(name)
    path = tmp_path / "transfer.safetensors"
    transfer.save(path)
    for one in (transfer, TransferSet.load(path)):
        learned, calibration_set = one.rows(table, fitted, task, train)
        assert calibration_set is None
        assert len(learned) == len(train) + 50
        np.testing.assert_array_equal(learned.x[: len(train)], train.x)
        made = fitted.transform(one.synthetic.table(table)).features
        np.testing.assert_array_equal(learned.x[len(train) :], made)
        base = np.r_[: len(train), one.synthetic.base]
        if name == "penguins":
            np.testing.assert_array_equal(learned.truth, base % 3)
            np.testing.assert_allclose(learned.y.sum(axis=1), 1, rtol=1e-6)
            assert learned.y.dtype == np.float32
        else:
            y = table["progression"].values
            np.testing.assert_allclose(learned.y[:, 0], (base - y.mean()) / y.std(), rtol=1e-5)


def test_a_student_that_predicts_the_same_errs_as_its_teacher_does():
    errors = np.random.default_rng(0).normal(0, 3.0, (400, 1))
    known = Residuals.of(errors, np.zeros((400, 1)) + np.arange(400)[:, None])
    (table, fitted, task, train), transfer = transfer_of("diabetes", made=10, errors=known)
    _, calibration_set = transfer.rows(table, fitted, task, train)
    assert len(calibration_set.x) == CALIBRATION_ROWS

    def interval(off):
        scaled = task.target.scaled(calibration_set.taught + off).astype(np.float32)
        own = calibration_set.calibrate(task, lambda x: scaled)["residuals"]
        low, high = own.interval(np.array([[200.0]]), 0.9)
        return float((high - low)[0, 0])

    # 90 % of a normal distribution lie within 1.645 deviations, those of a sum add up squared
    assert interval(0.0) == pytest.approx(2 * 1.645 * 3, rel=0.12)
    off = np.random.default_rng(1).normal(0, 4.0, (CALIBRATION_ROWS, 1))
    assert interval(off) == pytest.approx(2 * 1.645 * 5, rel=0.12)


def test_sets_of_a_student_that_predicts_the_same_are_those_of_its_teacher():
    truth = np.arange(3_000) % 3
    chances = np.random.default_rng(2).uniform(0.2, 1, 3_000) * np.array([1, 0.8, 0.5])[truth]
    known = ClassSets.kept(chances, truth)
    (table, fitted, task, train), transfer = transfer_of("penguins", made=10, errors=known)
    _, calibration_set = transfer.rows(table, fitted, task, train)
    same = calibration_set.calibrate(task, lambda x: np.log(calibration_set.taught))["sets"]
    for k in range(3):
        one, other = (
            np.quantile(s.chances[s.classes == k], (0.1, 0.5, 0.9)) for s in (same, known)
        )
        np.testing.assert_allclose(one, other, atol=0.04)
    drawn = np.bincount(calibration_set.drawn[:, 0].astype(int), minlength=3) / CALIBRATION_ROWS
    np.testing.assert_allclose(drawn, calibration_set.taught.mean(axis=0), atol=0.03)
    worse = calibration_set.calibrate(task, lambda x: np.log(calibration_set.taught[::-1]))["sets"]
    assert np.quantile(worse.chances, 0.1) < np.quantile(known.chances, 0.1)


def test_other_rows_and_other_files_are_refused(tmp_path):
    (table, fitted, task, train), transfer = transfer_of("diabetes")
    other = train.rows(np.arange(len(train))[::-1])
    with pytest.raises(UsageError, match="have changed since the teacher labeled them"):
        transfer.rows(table, fitted, task, other)
    path = tmp_path / "transfer.safetensors"
    transfer.save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        TransferSet.load(path)
