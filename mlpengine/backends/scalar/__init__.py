"""Networks on single numbers for exports: portable C99 without an allocator, and JavaScript.

Formulas, kernels and statements come from the compiled backend; a kernel has its statements on
single numbers in `emit_scalar`.  `functions` has the functions of layers and losses, and `update`
the functions of optimizers; `program` places the values of a step and collects its statements.
`text` has the definitions of a file and their C, `math` the mathematics, with or without libm;
`javascript` prints the same definitions.
"""
