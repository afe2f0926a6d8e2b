"""Convolution and pooling of images (batch, channels, height, width).

A convolution copies the patch under each window into a matrix, and multiplies the matrix by the
kernels, with one `numpy.dot` for each group of channels.  Backward copies the patches again: to
keep the matrix would take kh * kw times the memory of the image.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops._constant import ones
from mlpengine.ops.op import GradOp
from mlpengine.ops.window import Pair, Window, pair


@dataclass(frozen=True)
class Conv2d(GradOp, name="conv2d"):
    """Cross-correlation of images with kernels, summed over the channels of a group, plus a bias.

    Shapes: x (batch, channels, height, width), w (out_channels, channels / groups, kh, kw),
    b (out_channels,) or None, y (batch, out_channels, rows, columns), where
    rows = floor((height + 2 padding - dilation (kh - 1) - 1) / stride) + 1; the width gives columns
    in the same way.
    Backward: dw = dy times the patches of x; dx = w times dy, summed over overlapping windows;
    db = dy summed over all axes except the channels.
    Raises: ShapeError if channels, groups or sizes do not fit; UsageError for wrong options.
    """

    stride: int | Pair = 1
    padding: int | Pair = 0
    dilation: int | Pair = 1
    groups: int = 1

    cheap = False

    def window(self, kernel: tuple[int, ...]) -> Window:
        """Return the geometry for the kernel size; raise UsageError for invalid options."""
        return Window(
            (kernel[0], kernel[1]),
            pair(self.name, "stride", self.stride, 1),
            pair(self.name, "padding", self.padding, 0),
            pair(self.name, "dilation", self.dilation, 1),
        )

    def infer(self, x: Spec, w: Spec, b: Spec | None = None) -> Spec:
        _check_operands(self.groups, x, w, b)
        places = self.window(w.shape[2:]).places("conv2d", x)
        return Spec((x.shape[0], w.shape[0], *places), x.dtype)

    def work(self, x: Spec, w: Spec, b: Spec | None = None) -> dict[str, Spec]:
        tiles, sums = _matrix_specs(self.groups, w, self.infer(x, w, b))
        work = {"tiles": tiles, "sums": sums, "frame": self.window(w.shape[2:]).framed(x)}
        return work | {f"d{name}": spec for name, spec in work.items()}

    def forward(
        self, x: Array, w: Array, b: Array | None,
        *, out: Array, tiles: Array, sums: Array, frame: Array,
    ) -> Calls:  # fmt: skip
        yield from _unfold(self.window(w.shape[2:]), x, frame, tiles, out.shape[2:])
        yield from _products(_matrices(w, self.groups), tiles, sums)
        if b is not None:
            matrix = sums.reshape(b.size, -1)
            yield call(np.add, matrix, b[:, None], matrix)
        yield call(np.copyto, out, _as_images(sums, out))

    def backward(
        self, dy: Array, x: Array, w: Array,
        *, out: Slots, dtiles: Array, dsums: Array, dframe: Array,
    ) -> Calls:  # fmt: skip
        (dx, dw, db), window = out, self.window(w.shape[2:])
        yield call(np.copyto, _as_images(dsums, dy), dy)
        if db is not None:  # a product with ones is faster than np.sum
            yield call(np.dot, dsums.reshape(db.size, -1), ones(dsums.shape[-1], db.dtype), db)
        if dw is not None:
            yield from _unfold(window, x, dframe, dtiles, dy.shape[2:])
            yield from _products(dsums, dtiles.swapaxes(1, 2), _matrices(dw, self.groups))
        if dx is not None:
            yield from _products(_matrices(w, self.groups).swapaxes(1, 2), dsums, dtiles)
            yield from _fold(window, dtiles, dframe, dx, dy.shape[2:])


@dataclass(frozen=True)
class MaxPool2d(GradOp, name="max_pool2d"):
    """Largest entry under each window; the default stride is the kernel size.

    Of several largest entries, the first is chosen.  Padding is never chosen.  NaN stays NaN.

    Shapes: x (batch, channels, height, width), y (batch, channels, rows, columns), where
    rows = floor((height + 2 padding - kh) / stride) + 1; the width gives columns in the same way.
    Backward: dx = dy added at the largest entry of each window; forward stores its position.
    Raises: ShapeError if the kernel does not fit; UsageError for padding beyond half of the kernel.
    """

    kernel: int | Pair
    stride: int | Pair | None = None
    padding: int | Pair = 0

    def infer(self, x: Spec) -> Spec:
        need_floats("max_pool2d", x=x)
        _check_images("max_pool2d", x)
        return Spec((*x.shape[:2], *_pool_window(self).places("max_pool2d", x)), x.dtype)

    def work(self, x: Spec) -> dict[str, Spec]:
        y = self.infer(x)
        winner = Spec(y.shape, np.min_scalar_type(-prod(_pool_window(self).kernel)))
        better = Spec(y.shape, np.dtype(bool))
        return {"winner": winner, "better": better, "won": better, "number": winner, "share": y}

    def forward(
        self, x: Array, *, out: Array, winner: Array, better: Array, number: Array
    ) -> Calls:
        window, places = _pool_window(self), out.shape[2:]
        yield call(out.fill, -np.inf)
        yield call(np.copyto, winner, window.first_inside(places).astype(winner.dtype))
        for entry, (pixels, at) in enumerate(window.covered(x, places)):
            yield from _compared(pixels, entry, out[at], winner[at], better[at], number[at])

    def backward(self, dy: Array, *, out: Slots, winner: Array, won: Array, share: Array) -> Calls:
        (dx,), window = out, _pool_window(self)
        if dx is None:
            return
        apart = all(s >= k for s, k in zip(window.stride, window.kernel, strict=True))
        yield call(dx.fill, 0)
        for entry, (pixels, at) in enumerate(window.covered(dx, dy.shape[2:])):
            yield call(np.equal, winner[at], constant_like(entry, winner), won[at])
            yield call(np.multiply, dy[at], won[at], pixels if apart else share[at])
            if not apart:
                yield call(np.add, pixels, share[at], pixels)


def _pool_window(op: MaxPool2d) -> Window:
    """Return the geometry of max pooling; raise UsageError for invalid options."""
    kernel = pair(op.name, "kernel", op.kernel, 1)
    stride = pair(op.name, "stride", kernel if op.stride is None else op.stride, 1)
    padding = pair(op.name, "padding", op.padding, 0)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise UsageError(
            f"max_pool2d: padding must be at most half of the kernel "
            f"(padding {padding}, kernel {kernel})"
        )
    return Window(kernel, stride, padding)


def _check_images(where: str, x: Spec, **others: Spec | None) -> None:
    if len(x.shape) != 4:
        raise ShapeError(
            f"{where}: x must have the axes (batch, channels, height, width) "
            f"({listing(x=x, **others)})"
        )


def _check_operands(groups: int, x: Spec, w: Spec, b: Spec | None) -> None:
    need_floats("conv2d", x=x, w=w, b=b)
    if groups < 1:
        raise UsageError(f"conv2d: groups must be at least 1 ({groups})")
    _check_images("conv2d", x, w=w, b=b)
    listed = listing(x=x, w=w, b=b)
    if len(w.shape) != 4 or not w.size:
        raise ShapeError(f"conv2d: w must have the axes (out, in / groups, kh, kw) ({listed})")
    if x.shape[1] != groups * w.shape[1] or w.shape[0] % groups:
        raise ShapeError(
            "conv2d: x must have groups * w.shape[1] channels, and w.shape[0] must be a multiple "
            f"of groups (groups {groups}, {listed})"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ShapeError(f"conv2d: b needs one entry per output channel ({listed})")


def _matrices(w: Array, groups: int) -> Array:
    """Return the kernels as one matrix (out_channels / groups, patch) for each group."""
    return w.reshape(groups, w.shape[0] // groups, -1)


def _matrix_specs(groups: int, w: Spec, y: Spec) -> tuple[Spec, Spec]:
    """Return the specs of the patches and of their products with the kernels, for all groups."""
    windows = y.size // y.shape[1]
    tiles = Spec((groups, prod(w.shape[1:]), windows), y.dtype)
    return tiles, Spec((groups, w.shape[0] // groups, windows), y.dtype)


def _products(left: Array, right: Array, out: Array) -> Calls:
    for matrices in zip(left, right, out, strict=True):
        yield call(np.dot, *matrices)


def _compared(
    pixels: Array, entry: int, best: Array, winner: Array, better: Array, number: Array
) -> Calls:
    """Yield the calls that compare the pixels under a kernel entry with the largest pixels so far.

    Where a pixel is larger, the number `entry` becomes the `winner` of the window.  `entry` grows
    from call to call, so `np.maximum` sets the winner without a slow masked copy.
    """
    yield call(np.greater, pixels, best, better)
    yield call(np.maximum, best, pixels, out=best)
    yield call(np.multiply, better, constant_like(entry, winner), number)
    yield call(np.maximum, winner, number, out=winner)


def _as_images(sums: Array, images: Array) -> Array:
    """Return the sums (groups, channels, windows) with the axes of `images`."""
    batch, channels, *places = images.shape
    return sums.reshape(channels, batch, *places).swapaxes(0, 1)


def _unfold(window: Window, x: Array, frame: Array, tiles: Array, places: tuple[int, ...]) -> Calls:
    """Yield the calls that copy the patches into `tiles`; if padded, x is copied to `frame`."""
    source = x
    if frame.ndim == 4:
        source = frame
        yield call(frame.fill, 0)
        yield call(np.copyto, window.inner(frame), x)
    pixels = window.patches(source, places)
    yield call(np.copyto, tiles.reshape(pixels.shape), pixels)


def _fold(window: Window, tiles: Array, frame: Array, dx: Array, places: tuple[int, ...]) -> Calls:
    """Yield the calls that add the patches to the images, one sum for each kernel entry."""
    target = frame if frame.ndim == 4 else dx
    yield call(target.fill, 0)
    pixels = window.patches(target, places)
    tiles = tiles.reshape(pixels.shape)
    for entry in np.ndindex(*window.kernel):
        at = pixels[:, *entry]
        yield call(np.add, at, tiles[:, *entry], at)
    if target is frame:
        yield call(np.copyto, dx, window.inner(frame))
