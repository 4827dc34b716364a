"""Backends: what takes a RunSpec to a RunResult; the caller only chooses which."""
