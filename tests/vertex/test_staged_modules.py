"""The user's modules that a job imports are staged with it; those of T5X and of installed packages are the image's."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.spec import RunSpec
from t5x_harness.vertex import modules
from t5x_harness.vertex.closure import Closure, closure_of
from t5x_harness.vertex.modules import ClosureError


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _closure(folder: Path, **fields: tuple[str, ...]) -> Closure:
    return closure_of(RunSpec(("run.gin",), cwd=str(folder), runtime="embedded", **fields))


def _names(closure: Closure) -> list[str]:
    return sorted(file.name for file in closure.modules)


def test_a_module_and_what_it_imports_are_staged(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "run.gin": "import my_tasks\n",
            "my_tasks.py": "import os, seqio\nfrom my_metrics import bleu\ndef later():\n    import helpers.text\n",
            "my_metrics.py": "import numpy\n",
            "helpers/text.py": "",
            "helpers/unused.py": "",
            "unused.py": "",
        },
    )
    assert _names(_closure(tmp_path)) == ["python/helpers/text.py", "python/my_metrics.py", "python/my_tasks.py"]


def test_a_package_is_staged_with_its_data_and_without_caches(tmp_path: Path) -> None:
    _write(
        tmp_path / "src",
        {
            "pkg/__init__.py": "",
            "pkg/tasks.py": "from . import text\n",
            "pkg/data/vocab.model": "v",
            "pkg/__pycache__/tasks.cpython-311.pyc": "x",
            "pkg/.git/config": "secret",
        },
    )
    _write(tmp_path, {"run.gin": "from pkg import tasks\n"})
    closure = _closure(tmp_path, python_path=("src",))
    assert _names(closure) == ["python/pkg/__init__.py", "python/pkg/data/vocab.model", "python/pkg/tasks.py"]


def test_the_module_that_a_binding_names_is_staged(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "run.gin": "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
            "TASKS = 'my_tasks'\nutils.import_module.module = %TASKS\n",
            "my_tasks.py": "",
        },
    )
    assert _names(_closure(tmp_path)) == ["python/my_tasks.py"]


def test_installed_packages_are_left_to_the_image_and_named(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "run.gin": "import t5x_harness.sample_tasks.tasks\nimport sacrebleu\nimport seqio\nfrom t5x import utils\n",
            ".venv/lib/site-packages/theirs/__init__.py": "",
        },
    )
    closure = _closure(tmp_path)
    assert closure.modules == ()
    assert closure.of_image == ("module t5x_harness.sample_tasks.tasks", "module sacrebleu")


def test_a_package_installed_below_the_project_is_not_the_projects(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "import theirs\n", ".venv/lib/site-packages/theirs/__init__.py": ""})
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.syspath_prepend(str(tmp_path / ".venv" / "lib" / "site-packages"))
        closure = _closure(tmp_path)
    assert closure.modules == ()
    assert closure.of_image == ("module theirs",)


def test_links_out_of_a_package_are_passed_over_and_named(tmp_path: Path) -> None:
    _write(tmp_path, {"secret.txt": "s"})
    _write(tmp_path / "project", {"run.gin": "import pkg\n", "pkg/__init__.py": ""})
    (tmp_path / "project" / "pkg" / "linked.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "project" / "pkg" / "folder").symlink_to(tmp_path)
    closure = _closure(tmp_path / "project")
    assert _names(closure) == ["python/pkg/__init__.py"]
    assert closure.passed_over == (
        f"{tmp_path}/project/pkg/folder: a link to a folder",
        f"{tmp_path}/project/pkg/linked.txt: a link out of {tmp_path}/project",
    )


def test_packages_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "MOST_BYTES", 1 << 20)
    _write(tmp_path, {"run.gin": "import pkg\n", "pkg/__init__.py": "", "pkg/weights.bin": "0" * (1 << 20) + "1"})
    with pytest.raises(ClosureError, match=r"weights\.bin: with it more than 1 MiB of Python packages would be staged"):
        _closure(tmp_path)


def test_a_module_that_is_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"elsewhere/tasks.py": "", "project/run.gin": "import tasks\n"})
    (tmp_path / "project" / "tasks.py").symlink_to(tmp_path / "elsewhere" / "tasks.py")
    with pytest.raises(
        ClosureError, match=r"tasks\.py: this is a link to .*/elsewhere/tasks\.py, outside of the project"
    ):
        _closure(tmp_path / "project")
