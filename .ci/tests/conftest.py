"""Let these tests use the helpers of the suite."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
sys.path += [str(TESTS), str(TESTS / "backends")]
