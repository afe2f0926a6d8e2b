"""Rules that fuse several element-wise passes into one NumExpr kernel."""

from mlpengine.backends import Backend

NUMEXPR = Backend("numexpr")
AUTO = Backend("auto")
