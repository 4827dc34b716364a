"""The tour of the embedded runtime leads to code that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "t5x_harness/embedded/t5x/TOUR.md"
STOPS = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", TOUR.read_text())


def test_the_tour_can_be_walked_in_one_sitting() -> None:
    assert 40 <= len(TOUR.read_text().splitlines()) <= 70
    assert len(STOPS) > 30


@pytest.mark.parametrize(("name", "file"), STOPS)
def test_a_stop_is_defined_in_the_file_it_links_to(name: str, file: str) -> None:
    target = TOUR.parent / file
    if target.suffix != ".py":
        assert target.name == name
        assert target.is_file()
        return
    nodes = ast.walk(ast.parse(target.read_text()))
    assert name in {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
