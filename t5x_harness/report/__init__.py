"""The results of runs, as one value, and its writers: one module each."""
