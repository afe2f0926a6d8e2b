"""Networks as portable C99 for devices: scalar code, without an operating system or an allocator.

The formulas and the kernels are those of the compiled backend; a kernel has its own scalar C.
`text` has what every generated file needs: identifiers, comments, constants; `math` the
mathematics, by libm or without it; `functions` prints layers and losses, `update` optimizers;
`program` places the values of a training step, and lets its kernels print the statements, which
`statements` reads as typed nodes: `javascript` prints these.
"""
