"""Rows of linear algebra, images, shapes, indexing, normalization and scans."""

import numpy as np
from torch_rows import Draw, Row, axis_of, normal, positive, sizes, steps, torch

from mlpengine import tape as ours
from mlpengine.ops import Linear, PeriodicEmbedding, RunningStatistics

nnf = torch.nn.functional


def some(rng, *operands):
    """Leave out the last operand in half of the draws."""
    return list(operands[: len(operands) - int(rng.random() < 0.5)])


def linear(rng, dtype):
    x = normal(rng, sizes(rng, 2), dtype)
    out_dim = int(rng.integers(1, 6))
    w, b = normal(rng, (out_dim, x.shape[-1]), dtype), normal(rng, (out_dim,), dtype)
    if rng.random() < 0.5:
        return Draw(ours.linear, nnf.linear, some(rng, x, w, b))
    factor = float(rng.normal())
    return Draw(
        lambda *xs: xs[0].tape.apply(Linear(factor), *xs),
        lambda x, w, b=None: nnf.linear(x, factor * w, b),
        some(rng, x, w, b),
    )


def periodic_embedding(rng, dtype):
    rows, features, waves, outputs = (int(n) for n in rng.integers(1, 6, 4))
    embedded = int(rng.integers(1, features + 1))
    shapes = [(rows, features), (embedded, waves), (embedded, waves)]
    mixing = [(embedded, outputs, waves), (embedded, outputs)] * int(rng.random() < 0.7)

    def theirs(x, frequency, phase, weight=None, bias=None):
        wave = torch.cos(2 * torch.pi * x[:, :embedded, None] * frequency + phase)
        if weight is not None:
            wave = torch.einsum("njk,jqk->njq", wave, weight) + bias
        return torch.cat([x, wave.reshape(rows, -1)], 1)

    op = lambda *xs: xs[0].tape.apply(PeriodicEmbedding(), *xs)  # noqa: E731
    return Draw(op, theirs, [normal(rng, shape, dtype) for shape in [*shapes, *mixing]])


def matmul(rng, dtype):
    n, k, m = sizes(rng, 3, 3)
    return Draw(ours.matmul, torch.matmul, [normal(rng, (n, k), dtype), normal(rng, (k, m), dtype)])


def batch_matmul(rng, dtype):
    n, k, m = sizes(rng, 3, 3)
    lead = sizes(rng, 1, 3)
    leads = [tuple(1 if rng.random() < 0.3 else s for s in lead), lead[rng.integers(0, 3) :]]
    if rng.random() < 0.5:
        leads.reverse()
    operands = [normal(rng, (*leads[0], n, k), dtype), normal(rng, (*leads[1], k, m), dtype)]
    return Draw(ours.batch_matmul, torch.matmul, operands)


def transpose(rng, dtype):
    x = normal(rng, sizes(rng), dtype)
    axes = tuple(int(i) - x.ndim * int(rng.random() < 0.5) for i in rng.permutation(x.ndim))
    return Draw(lambda x: ours.transpose(x, axes), lambda x: x.permute(axes), [x])


def conv2d(rng, dtype):
    stride, padding, dilation, kernel = (
        tuple(int(n) for n in rng.integers(low, high, 2))
        for low, high in ((1, 4), (0, 3), (1, 3), (1, 4))
    )
    groups, inputs, outputs = (int(n) for n in rng.integers(1, 4, 3))
    height, width = (int(n) for n in rng.integers(5, 9, 2))
    x = normal(rng, (int(rng.integers(1, 4)), groups * inputs, height, width), dtype)
    w = normal(rng, (groups * outputs, inputs, *kernel), dtype)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return Draw(
        lambda *xs: ours.conv2d(*xs, **options),
        lambda *xs: nnf.conv2d(*xs, **options),
        some(rng, x, w, normal(rng, (groups * outputs,), dtype)),
    )


def max_pool2d(rng, dtype):
    kernel = tuple(int(n) for n in rng.integers(1, 5, 2))
    stride = tuple(int(n) for n in rng.integers(1, 4, 2)) if rng.random() < 0.7 else None
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    draw = steps if rng.random() < 0.5 else normal
    x = draw(rng, (*sizes(rng, 2, 2), *(int(n) for n in rng.integers(4, 9, 2))), dtype)
    return Draw(
        lambda x: ours.max_pool2d(x, kernel, stride=stride, padding=padding),
        lambda x: nnf.max_pool2d(x, kernel, stride, padding),
        [x],
    )


def cast(rng, dtype):
    asked = str(rng.choice(["float32", "float64"]))
    theirs = lambda x: x.to(getattr(torch, asked))  # noqa: E731
    return Draw(lambda x: ours.cast(x, asked), theirs, [normal(rng, sizes(rng), dtype)])


def reshape(rng, dtype):
    x = normal(rng, sizes(rng, 1), dtype)
    shape = tuple(int(n) for n in rng.permutation(x.shape))
    free = int(rng.integers(len(shape)))
    asked = (*shape[:free], -1, *shape[free + 1 :])
    return Draw(lambda x: ours.reshape(x, asked), lambda x: x.reshape(asked), [x])


def cat(rng, dtype):
    shape = list(sizes(rng, 1))
    axis = axis_of(rng, tuple(shape))
    operands = []
    for length in rng.integers(1, 5, rng.integers(1, 5)):
        shape[axis] = int(length)
        operands.append(normal(rng, tuple(shape), dtype))
    return Draw(lambda *xs: ours.cat(xs, axis), lambda *xs: torch.cat(xs, axis), operands)


def chunk(rng, dtype):
    shape, parts = list(sizes(rng, 1)), int(rng.integers(1, 5))
    axis = axis_of(rng, tuple(shape))
    shape[axis] *= parts
    x = normal(rng, tuple(shape), dtype)
    return Draw(
        lambda x: ours.chunk(x, parts, axis), lambda x: torch.tensor_split(x, parts, axis), [x]
    )


def slices(rng, dtype):
    x = normal(rng, sizes(rng, 1), dtype)
    key = []
    for n in x.shape[: rng.integers(1, x.ndim + 1)]:
        start, step = int(rng.integers(-n, n)), int(rng.integers(1, 3))
        key += [start, slice(start, None, step), slice(None, start + n), None, slice(None)][
            int(rng.integers(5)) :
        ][:1]
    if sum(entry is not None for entry in key) < x.ndim and rng.random() < 0.5:
        key.append(...)
    key = tuple(key)
    return Draw(lambda x: ours.slice(x, key), lambda x: x[key], [x])


def gather(rng, dtype):
    x = normal(rng, sizes(rng, 1), dtype)
    axis = axis_of(rng, x.shape)
    shape = [1 if rng.random() < 0.2 else n for n in x.shape]
    shape[axis] = int(rng.integers(1, 6))
    n = x.shape[axis]
    index = rng.integers(-n, n, shape)
    return Draw(
        lambda x, i: ours.gather(x, i, axis),
        lambda x, i: torch.take_along_dim(x, i % n, axis),
        [x, index],
    )


def index_select(rng, dtype):
    x = normal(rng, sizes(rng, 1), dtype)
    axis = axis_of(rng, x.shape)
    n = x.shape[axis]
    index = rng.integers(-n, n, rng.integers(1, 9))
    return Draw(
        lambda x, i: ours.index_select(x, i, axis),
        lambda x, i: torch.index_select(x, axis, i % n),
        [x, index],
    )


def embedding(rng, dtype):
    weight = normal(rng, sizes(rng, 2, 2), dtype)
    n = len(weight)
    index = np.asarray(rng.integers(-n, n, sizes(rng, 0, 3)))
    return Draw(ours.embedding, lambda w, i: nnf.embedding(i % n, w), [weight, index])


def record(our) -> Row:
    def row(rng, dtype):
        lengths = [int(n) for n in rng.integers(1, 4, rng.integers(1, 5))]
        shape = list(sizes(rng, 1))
        axis = axis_of(rng, tuple(shape))
        shape[axis] = sum(lengths)
        field = int(rng.integers(len(lengths)))
        x = normal(rng, tuple(shape), dtype)
        return Draw(
            lambda x: our(x, field, lengths, axis),
            lambda x: torch.split(x, lengths, axis)[field],
            [x],
        )

    return row


def looked_up(x, field, lengths, axis):
    keys = [f"key {i}" for i in range(len(lengths))]
    return ours.map_lookup(x, keys[field], keys, sizes=lengths, axis=axis)


def layer_norm(rng, dtype):
    # no fewer features: two that nearly tie lift rstd, and PyTorch's float32 error to 1e-4
    x = normal(rng, (*sizes(rng, 0, 3), int(rng.integers(6, 10))), dtype)
    features = x.shape[-1:]
    operands = [x, positive(rng, features, dtype), normal(rng, features, dtype)]
    operands = operands[: int(rng.integers(1, 4))]
    eps = float(rng.choice([1e-5, 1e-2]))
    return Draw(
        lambda *xs: ours.layer_norm(*xs, eps=eps),
        lambda x, *affine: nnf.layer_norm(x, features, *affine, eps=eps),
        operands,
    )


def batch_norm(rng, dtype):
    shape = (int(rng.integers(6, 10)), int(rng.integers(1, 5)), *sizes(rng, 0, 2))
    features, training = shape[1], bool(rng.random() < 0.6)
    running = RunningStatistics(features, dtype, momentum=float(rng.choice([0.1, 0.5])))
    running.mean[:], running.variance[:] = rng.standard_normal(features), rng.random(features) + 0.5
    theirs = [torch.tensor(running.mean), torch.tensor(running.variance)]
    operands = [normal(rng, shape, dtype), positive(rng, (features,), dtype)]
    operands = [*operands, normal(rng, (features,), dtype)][: int(rng.integers(1, 4))]

    def their_norm(x, *affine):
        return nnf.batch_norm(x, *theirs, *affine, training=training, momentum=running.momentum)

    return Draw(
        lambda *xs: ours.batch_norm(*xs, running=running, training=training),
        their_norm,
        operands,
        lambda: list(zip((running.mean, running.variance), theirs, strict=True)),
    )


def ssm_scan(rng, dtype):
    shape = sizes(rng, 2, 4)
    operands = [normal(rng, shape, dtype) for _ in range(3)]
    operands = some(rng, *operands, normal(rng, (*shape[:-2], shape[-1]), dtype))

    def theirs(a, b, x, h=None):
        states = []
        for t in range(shape[-2]):
            fed = b[..., t, :] * x[..., t, :]
            h = fed if h is None else a[..., t, :] * h + fed
            states.append(h)
        return torch.stack(states, -2)

    return Draw(ours.ssm_scan, theirs, operands)


ROWS: dict[str, Row] = {
    "periodic_embedding": periodic_embedding,
    "linear": linear,
    "matmul": matmul,
    "batch_matmul": batch_matmul,
    "transpose": transpose,
    "conv2d": conv2d,
    "max_pool2d": max_pool2d,
    "reshape": reshape,
    "cast": cast,
    "cat": cat,
    "chunk": chunk,
    "slice": slices,
    "gather": gather,
    "index_select": index_select,
    "embedding": embedding,
    "struct_field": record(ours.struct_field),
    "map_lookup": record(looked_up),
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "ssm_scan": ssm_scan,
}
