"""Optimizers of umT5."""
