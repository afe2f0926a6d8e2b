"""Scalar code (without vector registers) for exports: C99 without an allocator, and JavaScript.

Kernels and statements come from the compiled backend: `Kernel.emit_scalar` returns the scalar
statements of a kernel.  `layer_functions` has the functions of layers and losses, and `update_code`
the functions of optimizers.  `scalar_step` places the values of a step in memory and collects its
statements in a `ScalarWriter`.  `definitions` prints constants and functions as C, and `math` the
types and functions that they need.  `javascript` prints the same definitions as JavaScript.
"""
