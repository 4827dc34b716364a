"""What the TPU's compiler finds wrong with the programs of a run."""
