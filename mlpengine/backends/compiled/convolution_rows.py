"""Convolutions as matrix products (im2col): patches (windows, patch) times weights."""

from collections.abc import Iterator, Sequence
from math import prod

from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.moves import Entries, Move
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.strides import LoopAxis, contiguous
from mlpengine.backends.values import MatrixValue, Values
from mlpengine.core.spec import Array
from mlpengine.ops import Conv2d
from mlpengine.ops.window import Window


class ConvolutionRows(Move):
    """Convolutions: moves copy the image patches, and products multiply these with the weights."""

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op = instruction.op
        if not isinstance(op, Conv2d) or op.groups != 1:
            return None
        return [
            *(_backward if instruction.kind == "backward" else _forward)(op, instruction, values)
        ]


def _forward(op: Conv2d, instruction: InstructionLike, values: Values) -> Iterator[Kernel]:
    x, w, b = instruction.reads
    window, y = op.window(w.shape[2:]), instruction.writes[0]
    assert y is not None
    given, moves = _images(x, values)
    yield from moves
    weight, bias = values.read(_matrix(w)), None if b is None else values.read(b)
    kernels, tiles = _tiles(window, given, y.shape[2:], values)
    yield from kernels
    product = values.make((len(x), prod(y.shape[2:]), len(w)), given, "windows_")
    text = f"{product.name} = {tiles.name} {weight.name}^T"
    yield Product("forward", tiles, weight, product, bias, text)
    yield _channels_moved(product, values.write(y, "conv2d_", given.kind), values)


def _backward(op: Conv2d, instruction: InstructionLike, values: Values) -> Iterator[Kernel]:
    dy, x, w = instruction.reads
    (dx, dw, db), window = instruction.writes, op.window(w.shape[2:])
    slope, moves = _images(dy, values)
    given, others = _images(x, values)
    yield from (*moves, *others)
    flat = values.make((len(dy), prod(dy.shape[2:]), dy.shape[1]), slope, "d_windows_")
    yield _channels_moved(slope, flat, values)
    if dw is not None:
        kernels, tiles = _tiles(window, given, dy.shape[2:], values)
        yield from kernels
        c = values.write(_matrix(dw), "d_weight_")
        text = f"{c.name} = {flat.name}^T {tiles.name}"
        yield Product("weight_gradient", flat, tiles, c, None, text)
    if db is not None:
        yield ColumnSum(flat, values.write(db, "d_bias_"))
    if dx is not None:
        weight = values.read(_matrix(w))
        tiles = values.make((*flat.array.shape[:2], weight.columns), slope, "d_tiles_")
        text = f"{tiles.name} = {flat.name} {weight.name}"
        yield Product("input_gradient", flat, weight, tiles, None, text)
        out = values.write(dx, "d_images_", slope.kind)
        padded = any(window.padding)
        frame = values.make(_framed(window, dx.shape), slope, "d_frame_") if padded else out
        yield _folded(window, tiles, frame, dy.shape[2:], values)
        if padded:
            inner = _inner(window, frame, out, frame)
            yield Move(out, [inner], f"{out.name} = inside of {frame.name}", values.count(out))


def _images(x: Array, values: Values) -> tuple[MatrixValue, list[Move]]:
    """Return the value of `x` with the shape of `x`, and the move that reshapes it if needed."""
    value = values.read(x)
    if value.array.shape == x.shape:
        return value, []
    images = values.make(x.shape, value, "images_")
    return images, [Move.reshaped(value, images, values.count(images))]


def _matrix(w: Array) -> Array:
    """Return the weights as a matrix (output channels, patch)."""
    return w.reshape(len(w), -1)


def _framed(window: Window, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of images with padding."""
    sides = (n + 2 * p for n, p in zip(shape[2:], window.padding, strict=True))
    return (*shape[:2], *sides)


def _tiles(
    window: Window, x: MatrixValue, places: Sequence[int], values: Values
) -> tuple[list[Kernel], MatrixValue]:
    """Return the moves that copy the patches of images, and the patches (rows, windows, patch)."""
    kernels, count, frame = list[Kernel](), values.count(x), x
    if any(window.padding):
        frame = values.make(_framed(window, x.array.shape), x, "frame_")
        size = frame.array.size // count
        zeros = Entries(None, [LoopAxis(size, (1,))], (0,), (size,))
        parts = [zeros, _inner(window, frame, frame, x)]
        kernels.append(Move(frame, parts, f"{frame.name} = {x.name} with a frame", count))
    patch = frame.array.shape[1] * prod(window.kernel)
    tiles = values.make((len(x.array), prod(places), patch), x, "tiles_")
    part = _patches(window, frame, tiles, places, count)
    kernels.append(Move(tiles, [part], f"{tiles.name} = patches of {frame.name}", count))
    return kernels, tiles


def _patches(
    window: Window, frame: MatrixValue, tiles: MatrixValue, places: Sequence[int], count: int
) -> Entries:
    """Return the copy of entries from padded images `frame` to patches `tiles`."""
    kernel = window.kernel
    channels = frame.array.shape[1]
    _, far, down, right = contiguous(frame.array.shape)
    lengths = (*places, channels, *kernel)
    of_tiles = contiguous(lengths)
    of_frame = (
        *(window.stride[0] * down, window.stride[1] * right, far),
        *(window.dilation[0] * down, window.dilation[1] * right),
    )
    axes = [LoopAxis(n, (a, b)) for n, a, b in zip(lengths, of_tiles, of_frame, strict=True)]
    pitches = tiles.array.size // count, frame.array.size // count
    return Entries(frame, axes, (0, 0), pitches)


def _folded(
    window: Window, tiles: MatrixValue, frame: MatrixValue, places: Sequence[int], values: Values
) -> Move:
    """Return the move that adds patches to images, at the positions that `_patches` reads."""
    count = values.count(frame)
    part = _patches(window, frame, tiles, places, count)
    axes = [LoopAxis(axis.length, axis.strides[::-1]) for axis in part.axes]
    added = Entries(tiles, axes, (0, 0), part.pitches[::-1], adds=True)
    size = frame.array.size // count
    zeros = Entries(None, [LoopAxis(size, (1,))], (0,), (size,))
    return Move(frame, [zeros, added], f"{frame.name} = {tiles.name} added up", count)


def _inner(window: Window, frame: MatrixValue, to: MatrixValue, source: MatrixValue) -> Entries:
    """Return the copy from images to padded images `frame` if `to` is `frame`, else the reverse."""
    image = source if to is frame else to
    rows, channels, height, width = image.array.shape
    ends = [contiguous(v.array.shape)[1:] for v in (to, source)]
    lengths = channels, height, width
    axes = [LoopAxis(n, both) for n, both in zip(lengths, zip(*ends, strict=True), strict=True)]
    top, left = window.padding
    inside = top * frame.columns + left
    starts = (inside, 0) if to is frame else (0, inside)
    return Entries(source, axes, starts, (to.array.size // rows, source.array.size // rows))


def _channels_moved(x: MatrixValue, out: MatrixValue, values: Values) -> Move:
    """Return the move of the channels from the last axis to axis 1, or from axis 1 to the last."""
    images = out if out.array.ndim == 4 else x
    channels, *places = images.array.shape[1:]
    size = prod(places)
    of_images = size, places[1], 1
    of_windows = 1, places[1] * channels, channels
    ends = (of_images, of_windows) if images is out else (of_windows, of_images)
    axes = [
        LoopAxis(n, both)
        for n, both in zip((channels, *places), zip(*ends, strict=True), strict=True)
    ]
    pitch = channels * size
    part = Entries(x, axes, (0, 0), (pitch, pitch))
    return Move(out, [part], f"{out.name} = {x.name} by channels", values.count(out))
