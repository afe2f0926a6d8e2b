"""Train multilayer perceptrons of fixed architecture in preallocated buffers."""
