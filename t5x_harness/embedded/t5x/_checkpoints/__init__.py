"""The parts behind ``t5x.checkpoints``."""
