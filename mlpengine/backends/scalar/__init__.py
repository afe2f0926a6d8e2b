"""Networks on single numbers for exports: portable C99 without an allocator, and JavaScript.

Kernels and statements come from the compiled backend: `Kernel.emit_scalar` returns the statements
of a kernel on single numbers.  `layer_functions` has the functions of layers and losses, and
`update_code` the functions of optimizers.  `scalar_step` places the values of a step in memory and
collects its statements in a `scalar_writer`.  `definitions` prints constants and functions as C,
after the types and functions of `math`.  `javascript` prints them as JavaScript.
"""
