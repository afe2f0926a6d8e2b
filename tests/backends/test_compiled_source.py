"""The parts of a compiled program: typed statements, functions, and the layout of its memory."""

import re

import pytest
from uncompiled import uncompiled

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.backends.compiled.cache import chosen_target
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.statements import CFunction


def planned(functions, sizes, **options):
    """Return the first and last byte of each buffer, and the bytes of all."""
    layout = Layout(chosen_target(), 4)
    for name, (count, phases) in sizes.items():
        layout.reserve(name, count, phases=phases)
    layout.plan(functions, **options)
    places = {}
    for name, (count, _) in sizes.items():
        start = int(layout.pointer(name).split("+ ")[1].rstrip(")"))
        places[name] = range(start, start + 4 * count)
    return places, layout.nbytes


CHAIN = [CFunction(f"f{i}", "rows", [f"v{i}", f"v{i + 1}"], []) for i in range(4)]
SIZES = {f"v{i}": (100, ()) for i in range(5)}


def overlap(one, other):
    return max(one.start, other.start) < min(one.stop, other.stop)


def source_of_step(activation="relu", *, sizes=(5, 64, 64, 1)):
    mlp = Mlp(sizes, activation=activation, seed=0)
    with uncompiled():
        step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp, lr=0.1), 32, backend="compiled")
    return step.emit_c()


def tiles_of(source):
    return re.findall(r"^INLINE void \w+_tile\(.*?^}$", source, re.M | re.S)


def inlined(activation):
    """Return the tiles of a step in which an elementary function is computed."""
    tiles = tiles_of(source_of_step(activation))
    assert len(tiles) > 6
    return [tile for tile in tiles if re.search(r"= v_\w+\(", tile)]


@pytest.mark.parametrize("width", [64, 19])
def test_layers_of_one_shape_share_their_functions(width):
    three, twelve = (
        tiles_of(source_of_step(sizes=(5, *[width] * layers, 1))) for layers in (3, 12)
    )
    assert len(three) == len(twelve) > 6


def test_functions_that_differ_in_more_than_names_are_not_shared():
    alike = source_of_step(["relu", "relu", "relu"], sizes=(5, 64, 64, 64, 1))
    other = source_of_step(["relu", "tanh", "relu"], sizes=(5, 64, 64, 64, 1))
    assert len(tiles_of(alike)) == len(tiles_of(other)) - 2  # a layer's forward and backward


def test_tiles_of_all_heights_share_a_long_epilogue():
    assert inlined("tanh")
    assert not inlined("x * tanh(softplus(x)) * sin(x)")


def test_gradients_of_hidden_layers_are_not_copied():
    assert "void export_d_" not in source_of_step("mish")


@pytest.mark.parametrize(
    ("in_turn", "chunked", "buffers"), [(True, False, 2), (False, False, 5), (False, True, 5)]
)
def test_buffers_share_memory_only_where_functions_follow_one_another(in_turn, chunked, buffers):
    places, nbytes = planned(CHAIN, SIZES, in_turn=in_turn, chunked=chunked)
    assert nbytes == buffers * 448  # 100 floats in whole cache lines
    for function in CHAIN:
        one, other = (places[name] for name in function.buffers)
        assert not overlap(one, other)


def test_what_lives_across_phases_keeps_its_memory():
    functions = [
        CFunction("pack", "prepare", ["panels"], []),
        CFunction("product", "rows", ["panels", "y"], []),
        CFunction("sum", "reduce", ["y", "turned"], []),
    ]
    sizes = {
        "panels": (64, ()),
        "y": (64, ()),
        "turned": (64, ()),
        "row_loss": (64, ("update",)),
        "flag": (16, ("prepare", "update")),
    }
    places, _ = planned(functions, sizes, in_turn=True, chunked=False)
    assert all(not overlap(places["flag"], places[n]) for n in sizes if n != "flag")
    assert not overlap(places["y"], places["turned"])
    assert overlap(places["panels"], places["turned"])
    places, _ = planned(functions, sizes, in_turn=False, chunked=True)  # and round again
    assert not overlap(places["panels"], places["turned"])


def test_threads_wait_for_what_others_wrote_or_still_read():
    def made(reads, writes, *, by_columns):
        buffers = [*reads, *writes]
        return CFunction("f", "rows", buffers, [], writes=[*writes], by_columns=by_columns)

    columns = made("a", "b", by_columns=True)
    assert made("b", "c", by_columns=False).waits_for(columns)
    assert made("b", "c", by_columns=True).waits_for(columns)
    assert made("c", "a", by_columns=False).waits_for(columns)
    assert not made("a", "c", by_columns=False).waits_for(columns)  # both read
    rows = made("a", "b", by_columns=False)
    assert made("b", "c", by_columns=True).waits_for(rows)
    assert not made("b", "c", by_columns=False).waits_for(rows)  # each its own rows
