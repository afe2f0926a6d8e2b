"""Networks on single numbers for exports: portable C99 without an allocator, and JavaScript.

Formulas, kernels and statements come from the compiled backend; `emit_scalar` of a kernel returns
its statements on single numbers.  `layer_functions` has the functions of layers and losses, and
`update_code` the functions of optimizers.  `scalar_step` places the values of a step and collects
its statements in a `scalar_writer`.  `definitions` has the definitions of a file and their C, and
`math` the mathematics.  `javascript` prints the same definitions.
"""
