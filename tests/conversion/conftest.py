"""Tests that compare with transformers are collected only if it is installed: ``tox run -e convert``."""

import importlib.util

import t5x_in_use

collect_ignore = [] if importlib.util.find_spec("torch") else ["test_against_transformers.py"]


def pytest_configure() -> None:
    """Makes the chosen T5X importable, because the tests convert its networks."""
    t5x_in_use.use()
