"""Packed panels and tiles of products, and transposed vectors, against NumPy."""

import ctypes
from functools import cache
from importlib.resources import files
from itertools import product

import numpy as np
from test_compiled_math import TARGETS, TYPES, each_type

import mlpengine.backends.compiled
from mlpengine.backends.compiled.cache import load_library

CALLS = """
void call_transpose(real *r) { transpose((vec *)r); }
void call_panel(real *panel, const real *w, int64_t ld, int64_t depth, int64_t columns, int64_t j,
                int64_t vectors) {
  pack_transposed(panel, w, ld, depth, columns, j, vectors * LANES);
}
void call_tile(real *tile, const real *a, int64_t a_row, int64_t a_term, int64_t rows,
               int64_t terms) {
  pack_tile(tile, a, a_row, a_term, rows, terms);
}
"""


@cache
def program(dtype, level):
    real, bits, define, _ = TYPES[dtype]
    folder = files(mlpengine.backends.compiled)
    text = [
        f"#include <stdint.h>\ntypedef {real} real;\ntypedef {bits} bits;",
        f"#define BYTES {TARGETS[level].vector_bytes}\n#define TILE_ROWS 14\n{define}",
        *(folder.joinpath(f"{part}.h").read_text() for part in ("prelude", "transpose", "product")),
        CALLS,
    ]
    functions = ["call_transpose", "call_panel", "call_tile"]
    return load_library("\n".join(text), TARGETS[level], functions=functions)


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


def sizes(*values):
    return [ctypes.c_int64(value) for value in values]


def aligned(count, dtype):
    """Return zeros that begin at a multiple of 64 bytes, with room for a vector after them."""
    memory = np.zeros(count + 32, dtype)
    start = -memory.ctypes.data % 64 // memory.itemsize
    return memory[start : start + count + 16]


def lane_count(dtype, level):
    return TARGETS[level].vector_bytes // np.dtype(dtype).itemsize


@each_type
def test_vectors_are_transposed(dtype):
    for level in TARGETS:
        lanes = lane_count(dtype, level)
        block = aligned(lanes * lanes, dtype)[: lanes * lanes]
        block[:] = np.arange(lanes * lanes)
        wanted = block.reshape(lanes, lanes).T.copy()
        program(dtype, level).call_transpose(address(block))
        assert (block.reshape(lanes, lanes) == wanted).all(), level


@each_type
def test_panels_hold_columns_of_a_transposed_matrix(dtype):
    for level in TARGETS:
        lanes = lane_count(dtype, level)
        columns = (1, lanes - 1, lanes, 2 * lanes, 2 * lanes + 3)
        depths = (*range(1, 10), 15, 16, 17, 33)
        for count, depth, (vectors, j) in product(columns, depths, ((1, 0), (2, 0), (1, lanes))):
            w = np.arange(1, count * (depth + 2) + 1, dtype=dtype).reshape(count, depth + 2)
            width = vectors * lanes
            part = w[j : j + width, :depth].T
            if not part.size:
                continue
            panel = aligned(depth * width, dtype)
            place = sizes(depth + 2, depth, count, j, vectors)
            program(dtype, level).call_panel(address(panel), address(w), *place)
            mode = "wrap" if count < width == lanes else "constant"
            wanted = np.pad(part, ((0, 0), (0, width - part.shape[1])), mode)
            assert (panel[: depth * width].reshape(depth, width) == wanted).all(), level


@each_type
def test_tiles_hold_the_terms_of_rows(dtype):
    a = np.arange(1, 41 * 41 + 1, dtype=dtype).reshape(41, 41)
    for level, rows, terms in product(TARGETS, range(1, 15), (*range(1, 10), 16, 31)):
        for part, steps in ((a[:rows, :terms], (41, 1)), (a[:terms, :rows].T, (1, 41))):
            tile = aligned(rows * terms, dtype)
            call = program(dtype, level).call_tile
            call(address(tile), address(a), *sizes(*steps, rows, terms))
            assert (tile[: rows * terms].reshape(terms, rows) == part.T).all(), level
            assert not tile[rows * terms :].any()  # nothing is stored beyond the tile
