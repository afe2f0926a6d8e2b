"""What a row costs in C, beside what the tools of the compiler say."""

import shutil
import subprocess

import pytest

from mlpengine.backends.compiled.target import compiler_command
from mlpengine.core.errors import CompileError
from mlpengine.export._cost import SIZE_FLAGS, section_bytes

SOURCE = """\
#include <math.h>
static const float table[1000] = {1, 2, 3};
static float zeros[5000];
float changed[10] = {1};
float f(int i) { return zeros[i] + expf(table[i]) * changed[i % 10]; }
"""


@pytest.mark.skipif(shutil.which("size") is None, reason="needs size of binutils")
def test_bytes_of_an_object_are_those_of_size(tmp_path):
    (tmp_path / "a.c").write_text(SOURCE)
    subprocess.run([*compiler_command(), *SIZE_FLAGS, "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    shown = subprocess.run(["size", tmp_path / "a.o"], check=True, capture_output=True, text=True)
    text, data = map(int, shown.stdout.splitlines()[1].split()[:2])
    assert section_bytes((tmp_path / "a.o").read_bytes()) == text + data > 4_040


def test_other_objects_are_refused():
    with pytest.raises(CompileError, match="must write ELF objects"):
        section_bytes(b"\xcf\xfa\xed\xfe" + bytes(60))
