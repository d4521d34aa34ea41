"""What a run shows while it goes and afterwards: width bars on a terminal, progress, result tables, TensorBoard."""
