"""Runs in separate processes, forked from one that has imported the stack."""
