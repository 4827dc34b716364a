"""A config may import the harness's sample tasks from wherever it is run."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.gin.modules import ModuleFinder


def test_a_checkout_on_the_path_does_not_hide_the_harness(tmp_path: Path) -> None:
    # The source tree maps top-level folders into the package, so its t5x_harness/ alone lacks sample_tasks.
    (tmp_path / "t5x_harness").mkdir()
    (tmp_path / "t5x_harness" / "__init__.py").touch()
    found = ModuleFinder([tmp_path], None).find("t5x_harness.sample_tasks.tasks")
    assert found is not None
    assert found.origin is not None
    assert found.origin.name == "tasks.py"
