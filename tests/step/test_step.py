"""The bound training step: equal to the loop by hand, allocation-free, safe with bad numbers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
from traced import least_peak

from mlpengine import (
    Adam,
    BinaryCrossEntropyWithLogits,
    MeanSquaredError,
    Mlp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.core.errors import (
    CheckpointError,
    DtypeError,
    NumericalError,
    ShapeError,
    TapeError,
    UsageError,
)
from mlpengine.ops import Huber, MeanAbsoluteError, MeanOutput
from mlpengine.optim import PlateauSchedule, RmsProp
from mlpengine.step.fused_run import FusedRun

LOSSES = {
    "cross_entropy": SoftmaxCrossEntropy(),
    "smoothed": SoftmaxCrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5)),
    "bce": BinaryCrossEntropyWithLogits(),
    "mse": MeanSquaredError(),
    "mae": MeanAbsoluteError(),
    "huber": Huber(),
}


def data(loss: str, rows: int, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, width)).astype("f4")
    if loss in ("cross_entropy", "smoothed"):
        return x, rng.integers(0, 3, rows)
    y = rng.standard_normal((rows, 3)).astype("f4")
    return x, (y > 0).astype("f4") if loss == "bce" else y


@pytest.mark.parametrize(
    ("loss", "max_norm", "backend"),
    [
        *((loss, None, "numpy") for loss in LOSSES),
        ("smoothed", 0.1, "numpy"),
        ("smoothed", None, "compiled"),
        ("huber", 0.1, "compiled"),
    ],
)
def test_the_step_is_the_loop_by_hand(loss, max_norm, backend):
    x, y = data(loss, 20)
    ours, other = (Mlp([6, 8, 3], activation="tanh", seed=4) for _ in range(2))
    step = TrainingStep(
        ours, LOSSES[loss], Adam(ours, eps=1e-4), 20, clip_norm=max_norm, backend=backend
    )
    assert step.backend == backend
    # Machine code sums in another order, which Adam's first steps enlarge (hence the large eps).
    same = {"rtol": 0, "atol": 0} if backend == "numpy" else {"rtol": 1e-4, "atol": 2e-5}
    scratch, grads = other.scratch(20, backend="numpy"), other.gradients(20)
    adam = Adam(other, eps=1e-4)
    for _ in range(5):
        value = step(x, y)
        other.forward(x, scratch)
        np.testing.assert_allclose(value, LOSSES[loss](scratch.output, y, grads.d_output), **same)
        other.backward(scratch, grads)
        norm = grads.clip_global_norm_params(np.inf if max_norm is None else max_norm)
        adam.step(other, grads)
        np.testing.assert_allclose(step.grad_norm, norm, **same)
        np.testing.assert_allclose(ours.params.flat, other.params.flat, **same)


def test_sample_weights_of_zero_leave_rows_out(backend):
    x, y = data("mse", 12)
    weighted, plain = (Mlp([6, 4, 3], seed=1, dtype="float64") for _ in range(2))
    weights = np.r_[np.full(6, 2.0), np.zeros(6)]
    sgd, other = Sgd(weighted, lr=0.1), Sgd(plain, lr=0.1)
    step = TrainingStep(weighted, MeanSquaredError(), sgd, 12, weighted=True, backend=backend)
    half = TrainingStep(plain, MeanSquaredError(), other, 6, backend=backend)
    assert step(x, y, weights) == pytest.approx(half(x[:6], y[:6]), rel=1e-12)
    np.testing.assert_allclose(weighted.params.flat, plain.params.flat, rtol=1e-12)
    with pytest.raises(UsageError, match="needs sample_weight"):
        step(x, y)
    with pytest.raises(UsageError, match="weighted=True"):
        half(x[:6], y[:6], weights[:6])
    weights[2] = np.nan
    with pytest.raises(NumericalError, match="the weight is not, in row 2"):
        step(x, y, weights)


@pytest.mark.parametrize("part", ["optimizer", "dropout"])
def test_a_state_that_does_not_fit_changes_nothing(part):
    x, y = data("mse", 12)
    steps = []
    for seed in (0, 1):
        mlp = Mlp([6, 4, 3], dropout=0.2, seed=seed)
        steps.append(TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 12, backend="numpy"))
        steps[-1](x, y)
    own, other = steps
    state, kept = {**other.state_dict(), part: {}}, deepcopy(own)
    with pytest.raises(CheckpointError):
        own.load_state_dict(state)
    for _ in range(3):
        assert own(x, y) == kept(x, y)


def name_of(value: object) -> str:
    return getattr(value, "__name__", None) or type(value).__name__


def epoch_of(rows: int, loss: str = "cross_entropy", **options: object) -> Callable[[], None]:
    """Return an epoch over ``2 rows + rows / 3`` rows, gathered: the last batch is short."""
    n = 2 * rows + rows // 3
    x, y = data(loss, n)
    options = dict(options)
    activation, dropout = options.pop("activation", "tanh"), options.pop("dropout", 0.1)
    mlp = Mlp([6, 4, 3], activation=activation, dropout=dropout)
    optimizer = options.pop("optimizer", Adam)(mlp, lr=1e-3)
    step = TrainingStep(mlp, LOSSES[loss], optimizer, rows, **options)
    order = np.random.default_rng(0).permutation(n)

    def epoch() -> None:
        for start in range(0, n, rows):
            index = order[start : start + rows]
            bound = step.bound(len(index))
            x.take(index, 0, bound.scratch.input, "clip")
            y.take(index, 0, bound.loss.target, "clip")
            step.run(bound)

    return epoch


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "huber", "optimizer": RmsProp, "clip_norm": 0.01},
        {"backend": "numpy", "activation": "relu"},
        {"rematerialization": "balanced", "activation": "gelu"},
        {"backend": "compiled", "clip_norm": 0.01},
    ],
    ids=lambda o: "-".join(v if isinstance(v, str) else name_of(v) for v in o.values()),
)
def test_a_step_allocates_nothing_that_grows(options):
    small, large = (least_peak(epoch_of(rows, **options)) for rows in (4096, 16384))
    assert large - small < 1024


def poisoned(place: str, backend: str) -> tuple[TrainingStep, np.ndarray, np.ndarray]:
    x, y = data("mse", 8)
    mlp = Mlp([6, 5, 4, 3], activation="tanh")
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 8, backend=backend)
    step(x, y)
    if "input" in place:
        x[3, 2] = np.inf if "infinite" in place else np.nan
    elif place == "weight":
        mlp.weights[1][0, 0] = np.inf
    elif place == "target":
        y[5, 1] = np.nan
    elif place == "overflow":
        y[...] = 3e38
    return step, x, y


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("input", r"step 2: .*the input is not, in row 3 .*: column 2 is nan in float32\)"),
        ("infinite input", r"step 2: .*the input is not, in row 3 .*: column 2 is inf"),
        ("weight", r"step 2: .*layer 1, forward: 2.weight is not; learning rate 0.001\)"),
        ("target", "step 2: .*the target is not, in row 5 of the batch"),
        ("overflow", "step 2: .*not|overflow"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_numbers_that_are_not_finite_stop_before_the_update(place, words, backend):
    step, x, y = poisoned(place, backend)
    before = step.mlp.params.flat.copy()
    moments = {k: v.copy() for k, v in step.optimizer.moments.items()}
    with pytest.raises(NumericalError, match=words):
        step(x, y)
    np.testing.assert_array_equal(step.mlp.params.flat, before)
    for name, moment in moments.items():
        np.testing.assert_array_equal(step.optimizer.moments[name], moment)
    assert step.optimizer.steps == 1


def test_misuse_is_named(backend):
    step, x, y = poisoned("", backend)
    mlp = step.mlp
    with pytest.raises(ShapeError, match="training step: y"):
        step(x, y[:, :1])  # would broadcast
    with pytest.raises(UsageError, match="loss must have a target"):
        TrainingStep(mlp, MeanOutput(), Sgd(mlp), 8)
    with pytest.raises(ShapeError, match="up to 8 rows"):
        step(*data("mse", 9))
    with pytest.raises(ShapeError, match="training step: x"):
        step(None, y)
    with pytest.raises(ShapeError, match="x needs at least one row"):
        step(x[:0], y[:0])
    with pytest.raises(UsageError, match="auto, numpy, numexpr, compiled"):
        TrainingStep(mlp, MeanSquaredError(), Sgd(mlp), 8, backend="gpu")
    with pytest.raises(UsageError, match=r"ranks must be such as Ranks\(MPI.COMM_WORLD\)"):
        TrainingStep(mlp, MeanSquaredError(), Sgd(mlp), 8, ranks=3)
    with pytest.raises(DtypeError, match=r"y: dtype must be float32 \(got object\)$"):
        step(x, y.astype(object))
    for wrong in (0, 2.5, "auto", True):
        with pytest.raises(UsageError, match="batch_size must be a whole number of at least 1"):
            TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), wrong)
        with pytest.raises(UsageError, match="threads must be a whole number of at least 1"):
            TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 8, threads=wrong)
    with pytest.raises(UsageError, match="must be made for this network"):
        TrainingStep(Mlp([6, 4, 3]), MeanSquaredError(), Sgd(mlp, lr=0.1), 8)
    with pytest.raises(UsageError, match="clip_norm must be a finite number"):
        TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=1.0), 8, clip_norm="1")


@pytest.mark.parametrize(
    ("backend", "smoothing", "shards"),
    [("numpy", 0.0, 1), ("numpy", 0.1, 2), ("compiled", 0.0, 2), ("compiled", 0.1, 1)],
)
def test_cross_entropy_takes_rows_of_probabilities(backend, smoothing, shards):
    rng = np.random.default_rng(0)
    x, p = rng.standard_normal((12, 6)).astype("f4"), rng.dirichlet(np.ones(3), 12)
    mlp = Mlp([6, 3], seed=1)
    w, b = (view.astype("f8") for view in mlp.params.views.values())
    loss = SoftmaxCrossEntropy(label_smoothing=smoothing)
    step = TrainingStep(mlp, loss, Sgd(mlp, lr=0.5), 12, backend=backend, shards=shards)
    assert step.backend == backend
    value = step(x, p)
    logits = x @ w.T + b
    q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wanted = (1 - smoothing) * p + smoothing / 3
    np.testing.assert_allclose(value, -(wanted * np.log(q)).sum(1).mean(), rtol=1e-6)
    slope = (q - wanted) / 12
    new_w, new_b = mlp.params.views.values()
    np.testing.assert_allclose(new_w, w - 0.5 * slope.T @ x, atol=1e-6)
    np.testing.assert_allclose(new_b, b - 0.5 * slope.sum(0), atol=1e-6)
    assert step(x[:5], p[:5]) > 0
    assert deepcopy(step)(x, p) == step(x, p)


def test_a_step_takes_classes_and_probabilities_in_turn_and_in_one_call(backend):
    x, y = data("cross_entropy", 20)
    hot = np.eye(3, dtype="f4")[y]
    steps = [step_of(Mlp([6, 8, 3], seed=2), backend) for _ in range(2)]
    order = np.arange(20)
    for first, second in ((y, hot), (hot, y), (y, y)):
        assert steps[0](x, first) == pytest.approx(steps[1](x, second), rel=1e-5)
    many = [step.run_many(x, t, order)[0] for step, t in zip(steps, (y, hot), strict=True)]
    np.testing.assert_allclose(many[0], many[1], rtol=1e-5)


def step_of(mlp: Mlp, backend: str) -> TrainingStep:
    adam = Adam(mlp, eps=1e-4, schedule=PlateauSchedule(patience=1))
    return TrainingStep(mlp, SoftmaxCrossEntropy(), adam, 20, clip_norm=0.5, backend=backend)


def dropping(seed: int) -> Mlp:
    return Mlp([6, 8, 3], dropout=0.25, seed=seed)


def test_a_saved_step_continues_with_the_same_bits(tmp_path, backend):
    x, y = data("cross_entropy", 20)
    whole, other = (step_of(dropping(seed), backend) for seed in (3, 4))
    for _ in range(6):
        whole(x, y)
    whole.optimizer.lr = 0.01
    whole.save(tmp_path / "step.safetensors")
    expected = [whole(x, y) for _ in range(4)]
    other(x, y)
    other.load(tmp_path / "step.safetensors")
    assert other.optimizer.lr == 0.01
    assert [other(x, y) for _ in range(4)] == expected
    assert (other.mlp.params.flat == whole.mlp.params.flat).all()


def test_a_step_refuses_files_that_are_not_its_own(tmp_path):
    step = step_of(dropping(0), "numpy")
    path = tmp_path / "file.safetensors"
    step.mlp.save(path)
    with pytest.raises(CheckpointError, match=r"must be written by TrainingStep\.save"):
        step.load(path)
    step.save(path)
    with pytest.raises(CheckpointError, match=r"holds a training step; write step\.load"):
        Mlp.load(path)
    step_of(Mlp([6, 9, 3]), "numpy").save(path)
    with pytest.raises(CheckpointError, match=r"{'dropout': 0.0, 'sizes': \[6, 9, 3\]}}"):
        step.load(path)
    mlp = dropping(0)
    TrainingStep(mlp, SoftmaxCrossEntropy(), Sgd(mlp), 20).save(path)
    with pytest.raises(CheckpointError, match=r"file\.safetensors: Adam: .*same names"):
        step.load(path)
    with pytest.raises(CheckpointError, match=r"step.state_dict\(\) \(got None\)"):
        step.load_state_dict(None)
    with pytest.raises(CheckpointError, match="null: must be a file"):
        step.load("/dev/null")


@pytest.mark.parametrize(
    ("backend", "method"),
    [("numpy", "_run"), ("compiled", "_run_fused"), ("compiled", "make")],
)
def test_a_second_call_of_a_step_is_refused(backend, method, monkeypatch):
    mlp = Mlp([3, 4, 2], seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 4, backend=backend)
    x, y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    owner = FusedRun if method == "make" else TrainingStep
    plain, errors = getattr(owner, method), []

    def run(self, *arguments):
        with ThreadPoolExecutor(1) as pool:
            errors.append(pool.submit(step, x, y).exception())
        return plain(self, *arguments)

    monkeypatch.setattr(owner, method, run)
    losses = step.run_many(x, y, np.arange(4))[0] if owner is FusedRun else step(x, y)
    assert np.isfinite(losses).all()
    (error,) = errors
    assert isinstance(error, TapeError)
    assert str(error).startswith("training step: serves one call at a time (another is running)")


@pytest.mark.parametrize("backend", ["numpy", "numexpr", "compiled"])
def test_a_constant_beyond_the_dtype_is_infinite_without_a_warning(backend):
    x, y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    mlp = Mlp([3, 4, 2], activation="x * 1e39", seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 4, backend=backend)
    assert step.backend == backend
    with pytest.raises(NumericalError):
        step(x, y)
