"""Compiles full-size steps for the real slice, to find the memory that they need and their cost."""
