"""The parts behind `t5x.models`."""
