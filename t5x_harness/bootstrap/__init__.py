"""A folder for PYTHONPATH: its ``sitecustomize`` sets up each Python process under ``t5x-harness exec``."""
