"""The yardstick: a whole training step written by hand with NumPy and ``out=``, for one net each.

Everything that can be made before the loop is: buffers, transposed views, constants.  What is left
is what an experienced person writes in the loop of one fixed network.
"""

from collections.abc import Callable

import numpy as np

B1, B2, EPS, LR = 0.9, 0.999, 1e-8, 1e-3


def adam_step(params: np.ndarray, grads: np.ndarray) -> Callable[[], None]:
    """Return Adam over the flat vectors."""
    m, v, t, u = (np.zeros_like(params) for _ in range(4))
    count = 0

    def update() -> None:
        nonlocal count
        count += 1
        np.multiply(m, np.float32(B1), out=m)
        np.multiply(grads, np.float32(1 - B1), out=t)
        np.add(m, t, out=m)
        np.multiply(v, np.float32(B2), out=v)
        np.multiply(grads, grads, out=t)
        np.multiply(t, np.float32(1 - B2), out=t)
        np.add(v, t, out=v)
        np.sqrt(v, out=u)
        np.multiply(u, np.float32(1 / (1 - B2**count) ** 0.5), out=u)
        np.add(u, np.float32(EPS), out=u)
        np.divide(m, u, out=t)
        np.multiply(t, np.float32(LR / (1 - B1**count)), out=t)
        np.subtract(params, t, out=params)

    return update


def make_step(
    params: np.ndarray, sizes: tuple[int, ...], batch: int, activation: str, loss: str
) -> Callable[[np.ndarray, np.ndarray], float]:
    """Return ``step(x, y) -> loss`` that trains `params` in place (layout of `Mlp.params.flat`)."""
    layers = len(sizes) - 1
    grads = np.zeros_like(params)
    ws, bs, dws, dbs = [], [], [], []
    start = 0
    for i in range(layers):
        shape, stop = (sizes[i + 1], sizes[i]), start + sizes[i + 1] * sizes[i]
        ws.append(params[start:stop].reshape(shape))
        dws.append(grads[start:stop].reshape(shape))
        start, stop = stop, stop + sizes[i + 1]
        bs.append(params[start:stop])
        dbs.append(grads[start:stop])
        start = stop
    wts = [w.T for w in ws]
    hs = [np.empty((batch, n), "f4") for n in sizes]
    ds = [np.empty((batch, n), "f4") for n in sizes]
    dts = [d.T for d in ds]
    mask = [np.empty((batch, n), bool) for n in sizes]
    ones, column = np.ones(batch, "f4"), np.empty((batch, 1), "f4")
    picked, rows = np.empty(batch, "f4"), np.arange(batch)
    flat, offsets = np.empty(batch, np.int64), rows * sizes[-1]
    update = adam_step(params, grads)
    out, d_out = hs[-1], ds[-1]
    d_out_flat = d_out.reshape(-1)

    def mse(y: np.ndarray) -> float:
        np.subtract(out, y, out=d_out)
        value = float(np.dot(d_out_flat, d_out_flat)) / d_out.size
        np.multiply(d_out, np.float32(2 / d_out.size), out=d_out)
        return value

    def cross_entropy(y: np.ndarray) -> float:
        np.max(out, axis=1, keepdims=True, out=column)
        np.subtract(out, column, out=d_out)
        np.add(offsets, y, out=flat)
        np.take(d_out_flat, flat, out=picked, mode="clip")
        np.exp(d_out, out=d_out)
        np.sum(d_out, axis=1, keepdims=True, out=column)
        np.divide(d_out, column, out=d_out)
        np.log(column, out=column)
        value = float(np.sum(column) - np.sum(picked)) / batch
        d_out[rows, y] -= 1
        np.multiply(d_out, np.float32(1 / batch), out=d_out)
        return value

    loss_of = mse if loss == "mse" else cross_entropy

    def step(x: np.ndarray, y: np.ndarray) -> float:
        np.copyto(hs[0], x)
        for i in range(layers):
            h = hs[i + 1]
            np.dot(hs[i], wts[i], out=h)
            np.add(h, bs[i], out=h)
            if i < layers - 1:
                if activation == "tanh":
                    np.tanh(h, out=h)
                else:
                    np.maximum(h, 0, out=h)
        value = loss_of(y)
        for i in range(layers - 1, -1, -1):
            np.dot(dts[i + 1], hs[i], out=dws[i])
            np.dot(ones, ds[i + 1], out=dbs[i])
            if i:
                d, h = ds[i], hs[i]
                np.dot(ds[i + 1], ws[i], out=d)
                if activation == "tanh":
                    np.multiply(h, h, out=h)
                    np.subtract(1, h, out=h)
                    np.multiply(d, h, out=d)
                else:
                    np.greater(h, 0, out=mask[i])
                    np.multiply(d, mask[i], out=d)
        update()
        return value

    return step
