"""Headers of compiled programs: each uses itself and headers below it, in no circle."""

import re
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files

import pytest

import mlpengine.backends.compiled

HEADERS = {
    path.name: path.read_text()
    for path in files(mlpengine.backends.compiled).iterdir()
    if path.name.endswith(".h")
}

FUNCTION = re.compile(r'^[a-zA-Z_][\w "()*]*?\b(\w+)\((?!\()[^;{}]*\) \{', re.M)

NAME = re.compile(r"^ *#define (\w+)|^\} (\w+)", re.M)
"""Macros, and variables of a structure of their own."""


def dependencies(headers):
    """Return, for each header, the others whose functions, macros or constants it uses."""
    texts = {n: re.sub(r"/\*.*?\*/|//.*", "", t, flags=re.S) for n, t in headers.items()}
    calls = {n: {*FUNCTION.findall(t)} for n, t in texts.items()}
    names = {n: {a or b for a, b in NAME.findall(t)} for n, t in texts.items()}
    for name, text in texts.items():
        for constants in re.findall(r"enum \{([^}]*)\}", text):
            names[name] |= {*re.findall(r"[A-Z]\w+", constants)}
    graph = {}
    for one, text in texts.items():
        called = {*re.findall(r"(?<![.>\w])(\w+)\(", text)} - calls[one]
        used = {*re.findall(r"(?<![.>\w])\w+", text)} - names[one]
        graph[one] = {n for n in texts if n != one and (calls[n] & called or names[n] & used)}
    return graph


def test_no_circle_of_headers():
    graph = dependencies(HEADERS)
    assert graph["step_loop.h"] >= {"step.h", "call.h", "thread_pool.h"}
    assert "single_thread.h" in graph["norm.h"]
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("static int f(int x) {\n  return g(x);\n}", "INLINE int g(int x,\n int y) { f(1); }"),
        ("#define A(x) g(x)", "static void g(int x) { A(x); }"),
        ("enum { ONE };\nint f(void) { return s.n; }", "static struct {\n} s = {ONE};"),
    ],
)
def test_a_circle_of_headers_is_found(a, b):
    with pytest.raises(CycleError):
        TopologicalSorter(dependencies({"a.h": a, "b.h": b})).prepare()


def test_a_header_may_use_one_below_it():
    a = "static int f(void) {\n  if (g()) return s.g;\n} /* h() */"
    b = "int g(void) {\n  if (1) return 2;\n}\nint h(void);"
    assert dependencies({"a.h": a, "b.h": b}) == {"a.h": {"b.h"}, "b.h": set()}
