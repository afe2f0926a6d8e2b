"""Training: the bound step, the loop over epochs, metrics, run directories, checkpoints."""
