"""Convolution and pooling over images, (batch, channels, height, width).

A convolution copies the patches under all windows out of a strided view and multiplies them by
the kernel, one `numpy.dot` a group. Backward copies them out once more: keeping them would take
the kernel's size times the memory of the image from forward to backward, while the copy costs a
fifth of the product at 64 channels.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from mlpengine.errors import ShapeError, UsageError
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops._constant import constant, ones
from mlpengine.ops._op import GradOp
from mlpengine.ops._window import Pair, Window, pair
from mlpengine.spec import Array, Calls, Slots, Spec, call


@dataclass(frozen=True)
class Conv2d(GradOp, name="conv2d"):
    """Cross-correlation of images with kernels, summed over a group's channels, plus a bias.

    Shapes: x (batch, channels, height, width), w (out_channels, channels / groups, kh, kw),
    b (out_channels,) or left out, y (batch, out_channels, rows, columns), where
    rows = floor((height + 2 padding - dilation (kh - 1) - 1) / stride) + 1, columns likewise.
    Backward: dw = dy times the patches of x, dx = w times dy added up where windows overlap,
    db = dy summed over all axes but the channels.
    Raises: ShapeError if channels, groups or sizes do not fit; UsageError for wrong options.
    """

    stride: int | Pair = 1
    padding: int | Pair = 0
    dilation: int | Pair = 1
    groups: int = 1

    cheap = False

    def __post_init__(self) -> None:
        _window(self, (1, 1))

    def infer(self, x: Spec, w: Spec, b: Spec | None = None) -> Spec:
        need_floats("conv2d", x=x, w=w, b=b)
        _check_channels(self.groups, x, w, b)
        places = _window(self, w.shape[2:]).places("conv2d", x)
        return Spec((x.shape[0], w.shape[0], *places), x.dtype)

    def work(self, x: Spec, w: Spec, b: Spec | None = None) -> dict[str, Spec]:
        batch, channels, *places = self.infer(x, w, b).shape
        cells = batch * prod(places)
        patches = Spec((self.groups, prod(w.shape[1:]), cells), x.dtype)
        result = Spec((self.groups, channels // self.groups, cells), x.dtype)
        frame = _window(self, w.shape[2:]).framed(x)
        forward = {"patches": patches, "result": result, "frame": frame}
        return forward | {"dpatches": patches, "dresult": result, "dframe": frame}

    def forward(
        self, x: Array, w: Array, b: Array | None, *,
        out: Array, patches: Array, result: Array, frame: Array,
    ) -> Calls:  # fmt: skip
        yield from _unfolded(_window(self, w.shape[2:]), x, frame, patches, out.shape[2:])
        for kernel, columns, y in zip(_matrices(w, self.groups), patches, result, strict=True):
            yield call(np.dot, kernel, columns, y)
        images = _channels_first(result, out)
        if b is None:
            yield call(np.copyto, out, images)
        else:
            yield call(np.add, images, b[:, None, None], out)

    def backward(
        self, dy: Array, x: Array, w: Array, *,
        out: Slots, dpatches: Array, dresult: Array, dframe: Array,
    ) -> Calls:  # fmt: skip
        (dx, dw, db), window = out, _window(self, w.shape[2:])
        yield call(np.copyto, _channels_first(dresult, dy), dy)
        if db is not None:
            yield call(np.dot, dresult.reshape(db.size, -1), ones(dresult.shape[-1], dy.dtype), db)
        if dw is not None:
            yield from _unfolded(window, x, dframe, dpatches, dy.shape[2:])
            parts = zip(dresult, dpatches, _matrices(dw, self.groups), strict=True)
            yield from (call(np.dot, left, right.T, dkernel) for left, right, dkernel in parts)
        if dx is not None:
            parts = zip(_matrices(w, self.groups), dresult, dpatches, strict=True)
            yield from (call(np.dot, kernel.T, left, right) for kernel, left, right in parts)
            yield from _folded(window, dpatches, dframe, dx, dy.shape[2:])


@dataclass(frozen=True)
class MaxPool2d(GradOp, name="max_pool2d"):
    """Largest entry under each window; the stride is the kernel's size unless it is given.

    The first entry wins a tie, and padding never does. NaN stays NaN.

    Shapes: x (batch, channels, height, width), y (batch, channels, rows, columns), where
    rows = floor((height + 2 padding - kh) / stride) + 1, columns likewise.
    Backward: dx = dy added up at the entries that won, as forward stored them.
    Raises: ShapeError unless the kernel fits; UsageError for padding beyond half of the kernel.
    """

    kernel: int | Pair
    stride: int | Pair | None = None
    padding: int | Pair = 0

    def __post_init__(self) -> None:
        window = self._window
        if any(2 * p > k for p, k in zip(window.padding, window.kernel, strict=True)):
            raise UsageError(
                f"max_pool2d: padding must be at most half of the kernel "
                f"(padding {self.padding}, kernel {self.kernel})"
            )

    @property
    def _window(self) -> Window:
        kernel = pair(self.name, "kernel", self.kernel, 1)
        stride = pair(self.name, "stride", kernel if self.stride is None else self.stride, 1)
        return Window(kernel, stride, pair(self.name, "padding", self.padding, 0))

    def infer(self, x: Spec) -> Spec:
        need_floats("max_pool2d", x=x)
        _check_images("max_pool2d", x)
        return Spec((*x.shape[:2], *self._window.places("max_pool2d", x)), x.dtype)

    def work(self, x: Spec) -> dict[str, Spec]:
        y = self.infer(x)
        winner = Spec(y.shape, np.min_scalar_type(prod(self._window.kernel) - 1))
        better = Spec(y.shape, np.dtype(bool))
        return {"winner": winner, "better": better, "won": better, "number": winner, "share": y}

    def forward(
        self, x: Array, *, out: Array, winner: Array, better: Array, number: Array
    ) -> Calls:
        places = out.shape[2:]
        yield call(out.fill, -np.inf)
        yield call(np.copyto, winner, self._window.first_inside(places).astype(winner.dtype))
        for entry, (seen, at) in enumerate(self._window.sights(x, places)):
            # entries count up, so the last better one is the largest: 21 us for 346,112 windows,
            # where a copy under a mask takes 1,800 us
            yield call(np.greater, seen, out[at], better[at])
            yield call(np.maximum, out[at], seen, out=out[at])
            yield call(np.multiply, better[at], constant(entry, winner), number[at])
            yield call(np.maximum, winner[at], number[at], out=winner[at])

    def backward(self, dy: Array, *, out: Slots, winner: Array, won: Array, share: Array) -> Calls:
        (dx,), window = out, self._window
        if dx is None:
            return
        apart = all(s >= k for s, k in zip(window.stride, window.kernel, strict=True))
        yield call(dx.fill, 0)
        for entry, (seen, at) in enumerate(window.sights(dx, dy.shape[2:])):
            yield call(np.equal, winner[at], constant(entry, winner), won[at])
            yield call(np.multiply, dy[at], won[at], seen if apart else share[at])
            if not apart:
                yield call(np.add, seen, share[at], seen)


def _window(op: Conv2d, kernel: tuple[int, ...]) -> Window:
    """Return the geometry of a convolution; raise UsageError for options that make no sense."""
    if op.groups < 1:
        raise UsageError(f"conv2d: groups must be at least 1 ({op.groups})")
    return Window(
        (kernel[0], kernel[1]),
        pair(op.name, "stride", op.stride, 1),
        pair(op.name, "padding", op.padding, 0),
        pair(op.name, "dilation", op.dilation, 1),
    )


def _check_images(where: str, x: Spec, **others: Spec | None) -> None:
    if len(x.shape) != 4:
        raise ShapeError(
            f"{where}: x must have the axes (batch, channels, height, width) "
            f"({listing(x=x, **others)})"
        )


def _check_channels(groups: int, x: Spec, w: Spec, b: Spec | None) -> None:
    _check_images("conv2d", x, w=w, b=b)
    listed = listing(x=x, w=w, b=b)
    if len(w.shape) != 4 or not w.size:
        raise ShapeError(f"conv2d: w must have the axes (out, in / groups, kh, kw) ({listed})")
    if x.shape[1] != groups * w.shape[1] or w.shape[0] % groups:
        raise ShapeError(
            f"conv2d: x must have as many channels as w takes in {groups} groups, and w must "
            f"give as many to each group ({listed})"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ShapeError(f"conv2d: b needs one entry per output channel ({listed})")


def _matrices(w: Array, groups: int) -> Array:
    """Return the kernels as one matrix (out_channels / groups, patch) for each group."""
    return w.reshape(groups, w.shape[0] // groups, -1)


def _channels_first(result: Array, images: Array) -> Array:
    """Return the products (groups, channels, cells) with the axes of `images`."""
    batch, channels, *places = images.shape
    return result.reshape(channels, batch, *places).swapaxes(0, 1)


def _unfolded(
    window: Window, x: Array, frame: Array, patches: Array, places: tuple[int, ...]
) -> Calls:
    """Yield the calls that copy the patches of x, through the padded `frame` if there is one."""
    source = x
    if frame.ndim == 4:
        source = frame
        yield call(frame.fill, 0)
        yield call(np.copyto, window.inner(frame), x)
    seen = window.patches(source, places)
    yield call(np.copyto, patches.reshape(seen.shape), seen)


def _folded(
    window: Window, patches: Array, frame: Array, dx: Array, places: tuple[int, ...]
) -> Calls:
    """Yield the calls that add the patches up where they came from: one for each kernel entry."""
    target = frame if frame.ndim == 4 else dx
    yield call(target.fill, 0)
    seen = window.patches(target, places)
    patches = patches.reshape(seen.shape)
    for entry in np.ndindex(*window.kernel):
        at = seen[:, *entry]
        yield call(np.add, at, patches[:, *entry], at)
    if target is frame:
        yield call(np.copyto, dx, window.inner(frame))
