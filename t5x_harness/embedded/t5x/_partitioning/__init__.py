"""The parts behind ``t5x.partitioning``."""
