"""Compiles full-size steps for the real slice, to know the memory that they need and their cost."""
