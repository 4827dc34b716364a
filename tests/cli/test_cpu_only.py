"""If libtpu is installed, only commands that compile for a TPU let JAX start it, as it might hold the chips."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.stack

LIBTPU = """
import os
def get_library_path():  # JAX asks for it whenever it is imported
    with open(os.environ["ASKED"], "a") as asked:
        print(os.environ.get("JAX_PLATFORMS"), file=asked)
    return None
"""


@pytest.fixture
def platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Runs a command; returns the values of JAX_PLATFORMS in its processes when they imported JAX."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/libtpu.py").write_text(LIBTPU)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [f"{tmp_path}/modules", os.environ.get("PYTHONPATH")]))
    )
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    for name in ("JAX_PLATFORMS", "TPU_LIBRARY_PATH"):  # JAX sets the latter where it is imported
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> set[str]:
        subprocess.run([sys.executable, "-m", "t5x_harness", *arguments], capture_output=True, check=False)
        return set((tmp_path / "asked").read_text().splitlines())

    return run


def test_convert_even_where_it_only_refuses(platforms: Callable[..., set[str]]) -> None:
    assert platforms("convert", "not-there", "--to=t5x", "--output=out") == {"cpu"}


@pytest.mark.journey
def test_cache(platforms: Callable[..., set[str]]) -> None:
    arguments = ("--module_import=t5x_harness.sample_tasks.tasks", "--tasks=not_there", "--output_cache_dir=out")
    assert platforms("cache", *arguments) == {"cpu"}


@pytest.mark.journey
def test_runs(platforms: Callable[..., set[str]], repository: Path) -> None:
    config = repository / "sample_tasks/configs/finetune_classify.gin"
    assert platforms("plan", str(config), f"--gin_search_paths={config.parent}", "--t5x-runtime=embedded") == {"cpu"}
