"""Tests that compare with transformers are there where it is installed: ``tox run -e convert``."""

from __future__ import annotations

import importlib.util

import t5x_in_use

collect_ignore = [] if importlib.util.find_spec("torch") else ["test_against_transformers.py"]


def pytest_configure() -> None:
    """Makes the T5X in use importable, whose networks the tests convert."""
    t5x_in_use.use()
