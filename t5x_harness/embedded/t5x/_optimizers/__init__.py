"""The parts behind ``t5x.optimizers``."""
