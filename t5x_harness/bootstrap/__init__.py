"""A folder for PYTHONPATH, whose ``sitecustomize`` sets up each Python process under ``t5x-harness exec``."""
