"""Record a computation, plan its memory, replay it."""

from mlpengine.tape.flat import Flat
from mlpengine.tape.gradcheck import gradcheck
from mlpengine.tape.program import Program
from mlpengine.tape.tape import Node, Tape

__all__ = ["Flat", "Node", "Program", "Tape", "gradcheck"]
