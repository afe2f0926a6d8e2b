"""Rows of arithmetic, element-wise functions, activations, reductions and losses."""

from functools import partial

from torch_rows import Draw, Row, axis_of, normal, positive, sizes, steps, stretched, torch

from mlpengine import tape as ours
from mlpengine.ops import LearnedActivation

nnf = torch.nn.functional


def unary(our, their, draw=normal) -> Row:
    return lambda rng, dtype: Draw(our, their, [draw(rng, sizes(rng), dtype)])


def binary(our, their, draw=normal, second=None) -> Row:
    def row(rng, dtype):
        shape = sizes(rng)
        shapes = [shape, stretched(rng, shape)]
        if rng.random() < 0.5:
            shapes.reverse()
        draws = (draw, second or draw)
        return Draw(our, their, [d(rng, s, dtype) for d, s in zip(draws, shapes, strict=True)])

    return row


def with_scalar(our, their, low, high, draw=normal) -> Row:
    def row(rng, dtype):
        s = float(rng.uniform(low, high))
        return Draw(lambda x: our(x, s), lambda x: their(x, s), [draw(rng, sizes(rng), dtype)])

    return row


def power(rng, dtype):
    n = float(rng.choice([-2, -1, -0.5, 0, 0.5, 1, 2, 3]))
    draw = steps if n in (0, 1, 2, 3) else positive
    x = draw(rng, sizes(rng), dtype)
    return Draw(lambda x: ours.pow(x, n), lambda x: torch.pow(x, n), [x])


def clamp(rng, dtype):
    lo, hi = -float(rng.integers(0, 3)), float(rng.integers(1, 3))
    x = steps(rng, sizes(rng), dtype)
    return Draw(lambda x: ours.clamp(x, lo, hi), lambda x: torch.clamp(x, lo, hi), [x])


def where(rng, dtype):
    shape = sizes(rng)
    cond = rng.random(stretched(rng, shape)) < 0.5
    operands = [cond, normal(rng, shape, dtype), normal(rng, stretched(rng, shape), dtype)]
    return Draw(ours.where, torch.where, operands)


def learned_activation(rng, dtype):
    name, theirs = [("mish", nnf.mish), ("selu", nnf.selu), ("silu", nnf.silu)][rng.integers(3)]
    rows, units = (int(n) for n in rng.integers(1, 6, 2))
    return Draw(
        lambda x, alpha: x.tape.apply(LearnedActivation(name), x, alpha),
        lambda x, alpha: x + alpha * (theirs(x) - x),
        [normal(rng, (rows, units), dtype), normal(rng, (units,), dtype)],
    )


def gelu(rng, dtype):
    kind = str(rng.choice(["none", "tanh"]))
    x = normal(rng, sizes(rng), dtype)
    return Draw(lambda x: ours.gelu(x, kind), partial(nnf.gelu, approximate=kind), [x])


def along_axis(our, their, lowest=1) -> Row:
    def row(rng, dtype):
        x = normal(rng, sizes(rng, lowest), dtype)
        axis = axis_of(rng, x.shape)
        return Draw(lambda x: our(x, axis), lambda x: their(x, axis), [x])

    return row


def reduction(our, their, *, several: bool) -> Row:
    def row(rng, dtype):
        x = normal(rng, sizes(rng, 1), dtype)
        axis, keepdims = axis_of(rng, x.shape), bool(rng.random() < 0.5)
        if several and rng.random() < 0.5:
            count = int(rng.integers(1, x.ndim + 1))
            axis = tuple(int(i) for i in rng.permutation(x.ndim)[:count])
        return Draw(
            lambda x: our(x, axis, keepdims=keepdims), lambda x: their(x, axis, keepdims), [x]
        )

    return row


def rows_loss(our, their, target=normal) -> Row:
    """A loss of output and target of one shape, with sample weights in half of the draws."""

    def row(rng, dtype):
        shape = sizes(rng, 2, 2)
        option = float(rng.uniform(0.3, 3.0))
        operands = [normal(rng, shape, dtype), target(rng, shape, dtype)]
        if rng.random() < 0.5:
            operands.append(positive(rng, shape[:1], dtype))

        def theirs(x, t, weight=None):
            entries = their(x, t, option)
            return (entries if weight is None else entries * weight[:, None]).mean()

        return Draw(lambda *xs: our(*xs, option), theirs, operands)

    return row


def probabilities(rng, shape, dtype):
    return rng.random(shape).astype(dtype)


def binary_entropy(x, t, weight):
    pos_weight = torch.tensor(weight, dtype=x.dtype)
    return nnf.binary_cross_entropy_with_logits(x, t, reduction="none", pos_weight=pos_weight)


def focal(x, t, _):
    p = torch.sigmoid(x)
    entropy = nnf.binary_cross_entropy_with_logits(x, t, reduction="none")
    wrong = 1 - (p * t + (1 - p) * (1 - t))
    return (0.3 * t + 0.7 * (1 - t)) * wrong**2 * entropy


def gaussian(rng, dtype):
    n, m = int(rng.integers(1, 9)), int(rng.integers(1, 4))

    def theirs(x, t):
        return nnf.gaussian_nll_loss(x[:, ::2], t, torch.exp(x[:, 1::2]), eps=0)

    return Draw(
        ours.gaussian_nll, theirs, [normal(rng, (n, 2 * m), dtype), normal(rng, (n, m), dtype)]
    )


def cross_entropy(rng, dtype):
    batch, classes = int(rng.integers(1, 9)), int(rng.integers(2, 7))
    x = normal(rng, (batch, classes), dtype)
    smoothing = float(rng.choice([0.0, 0.1, 0.5]))
    ignored = int(rng.choice([-1, 0])) if rng.random() < 0.5 else None
    class_weights = positive(rng, (classes,), dtype) if rng.random() < 0.5 else None
    if rng.random() < 0.4:
        target, ignored = rng.dirichlet([1.0] * classes, batch).astype(dtype), None
    else:
        target = rng.integers(-1 if ignored == -1 else 0, classes, batch)
    operands = [x, target] + ([positive(rng, (batch,), dtype)] if rng.random() < 0.5 else [])

    def theirs(x, t, weight=None):
        losses = nnf.cross_entropy(
            x,
            t,
            reduction="none",
            label_smoothing=smoothing,
            weight=None if class_weights is None else torch.from_numpy(class_weights),
            **({} if ignored is None else {"ignore_index": ignored}),
        )
        return (losses if weight is None else losses * weight).sum() / batch

    options = {"label_smoothing": smoothing, "ignore_index": ignored}
    if class_weights is not None:
        options["class_weights"] = tuple(float(c) for c in class_weights)
    return Draw(lambda *xs: ours.softmax_cross_entropy(*xs, **options), theirs, operands)


ROWS: dict[str, Row] = {
    "add": binary(ours.add, torch.add),
    "sub": binary(ours.sub, torch.sub),
    "mul": binary(ours.mul, torch.mul),
    "div": binary(ours.div, torch.div, second=positive),
    "learned_activation": learned_activation,
    "neg": unary(ours.neg, torch.neg),
    "scalar_mul": with_scalar(ours.scalar_mul, torch.mul, -3, 3),
    "scalar_add": with_scalar(ours.scalar_add, torch.add, -3, 3),
    "pow": power,
    "exp": unary(ours.exp, torch.exp),
    "log": unary(ours.log, torch.log, positive),
    "log2": unary(ours.log2, torch.log2, positive),
    "log_eps": with_scalar(ours.log_eps, lambda x, s: torch.log(x + s), 0.1, 1, positive),
    "sin": unary(ours.sin, torch.sin),
    "cos": unary(ours.cos, torch.cos),
    "sqrt": unary(ours.sqrt, torch.sqrt, positive),
    "rsqrt": unary(ours.rsqrt, torch.rsqrt, positive),
    "abs": unary(ours.abs, torch.abs, steps),
    "clamp": clamp,
    "where": where,
    "maximum": binary(ours.maximum, torch.maximum, steps),
    "minimum": binary(ours.minimum, torch.minimum, steps),
    "relu": unary(ours.relu, torch.relu, steps),
    "leaky_relu": with_scalar(ours.leaky_relu, nnf.leaky_relu, 0.01, 0.9, steps),
    "elu": with_scalar(ours.elu, nnf.elu, 0.2, 3),
    "selu": unary(ours.selu, nnf.selu),
    "gelu": gelu,
    "silu": unary(ours.silu, nnf.silu),
    "softplus": unary(ours.softplus, nnf.softplus),
    "sigmoid": unary(ours.sigmoid, torch.sigmoid),
    "tanh": unary(ours.tanh, torch.tanh),
    "mish": unary(ours.mish, nnf.mish),
    "hardswish": unary(ours.hardswish, nnf.hardswish, steps),
    "softsign": unary(ours.softsign, nnf.softsign),
    "softmax": along_axis(ours.softmax, torch.softmax),
    "log_softmax": along_axis(ours.log_softmax, torch.log_softmax),
    "sum": reduction(ours.sum, torch.sum, several=True),
    "mean": reduction(ours.mean, torch.mean, several=True),
    "max": reduction(ours.max, torch.amax, several=False),
    "min": reduction(ours.min, torch.amin, several=False),
    "logsumexp": reduction(ours.logsumexp, torch.logsumexp, several=False),
    "mse": rows_loss(
        lambda *xs: ours.mse(*xs[:-1]), lambda x, t, _: nnf.mse_loss(x, t, reduction="none")
    ),
    "mae": rows_loss(
        lambda *xs: ours.mae(*xs[:-1]),
        lambda x, t, _: nnf.l1_loss(x, t, reduction="none"),
        steps,
    ),
    "huber": rows_loss(
        lambda *xs: ours.huber(*xs[:-1], delta=xs[-1]),
        lambda x, t, delta: nnf.huber_loss(x, t, delta=delta, reduction="none"),
    ),
    "bce_with_logits": rows_loss(
        lambda *xs: ours.bce_with_logits(*xs[:-1], positive_weight=xs[-1]),
        binary_entropy,
        probabilities,
    ),
    "log_cosh": rows_loss(
        lambda *xs: ours.log_cosh(*xs[:-1]), lambda x, t, _: torch.log(torch.cosh(x - t))
    ),
    "quantile": rows_loss(
        lambda *xs: ours.quantile(*xs[:-1], levels=(0.3,)),
        lambda x, t, _: torch.maximum(0.3 * (t - x), -0.7 * (t - x)),
        steps,
    ),
    "poisson": rows_loss(
        lambda *xs: ours.poisson(*xs[:-1]),
        lambda x, t, _: nnf.poisson_nll_loss(x, t, reduction="none"),
        positive,
    ),
    "gamma": rows_loss(
        lambda *xs: ours.gamma(*xs[:-1]), lambda x, t, _: x + t * torch.exp(-x), positive
    ),
    "binary_focal": rows_loss(
        lambda *xs: ours.binary_focal(*xs[:-1], gamma=2.0, alpha=0.3), focal, probabilities
    ),
    "gaussian_nll": gaussian,
    "softmax_cross_entropy": cross_entropy,
}
