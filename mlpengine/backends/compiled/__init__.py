"""Programs as machine code: C for constant shapes, compiled once and run by one call.

A kernel implements an op, or a part of it (`kernel`).  Each kind of kernel has a file: `products`
(with `tiling`, `panels` and `tile_loops`), `batch_products`, `column_sum`, `sums`, `maps`, `moves`,
`loss_rows`, `softmax_rows`, `layer_norm_rows`, `batch_norm_rows`, `convolution_rows`, `dropout`,
`normals`, `selected_entries`.

`lower` converts the instructions of a program to kernels, assigns the kernels to phases of a step,
and fuses them.  `layout` places every value in memory.  `emitter` lets the kernels add C functions
of `statements` to a `function_writer`.  `update_loops` has the functions of the optimizer, and
`source` prints the file.  Code that all programs share is in the headers.  `cache` compiles a
program or loads it from disk, and `executor` calls it.  NumPy runs ops that no kernel implements.
"""
