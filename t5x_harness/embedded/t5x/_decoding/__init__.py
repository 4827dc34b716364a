"""The parts behind `t5x.decoding`."""
