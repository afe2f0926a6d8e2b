"""Networks as portable C99 for devices: scalar code, without an operating system or an allocator.

The formulas and the instruction list are those of the compiled backend.  `text` has what every
generated file needs: identifiers, comments, constants; `math` the mathematics, by libm or without
it; `functions` prints layers, losses and updates; `program` places the values of a training step.
"""
