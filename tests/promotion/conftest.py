"""Promoting sessions are forked from a process that has imported Google's library, because imports take most time."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.workers.zygote import Zygote

Session = Callable[..., pytest.RunResult]


@pytest.fixture(scope="session")
def google_imported(hermetic: Path) -> Iterator[Zygote]:
    """A process that has imported pytest and the parts of Google's libraries that promoting sessions import."""
    with Zygote(preload=["pytest_session"], python_path=[str(Path(__file__).parent)]) as zygote:
        yield zygote


@pytest.fixture
def run_pytest(
    pytester: pytest.Pytester, google_imported: Zygote, imported: None, monkeypatch: pytest.MonkeyPatch
) -> Session:
    """Runs pytest like ``pytester.runpytest_subprocess``, but in a fork, with the sample models and without a target.

    In any outcome, the output may not contain a traceback of the harness.
    """
    numbers = itertools.count()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name in ("", "_PROJECT", "_LOCATION", "_BUCKET", "_IMAGE"):
        monkeypatch.delenv(f"T5X_HARNESS_VERTEX{name}", raising=False)
    shutil.copytree(CONFIGS / "models", pytester.path / "models")

    def run(*arguments: str) -> pytest.RunResult:
        base = f"--basetemp={pytester.path / f'runpytest-{next(numbers)}'}"
        given = [base, "--t5x-runtime=embedded", *map(str, arguments)]
        print("running: pytest", *given)
        files = [pytester.path / name for name in ("stdout", "stderr")]
        env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(pytester.path), os.environ.get("PYTHONPATH")]))}
        start = time.perf_counter()
        with google_imported.start(
            "pytest_session:PytestSession", {}, log=pytester.path / "fork.log", cwd=pytester.path, env=env
        ) as session:
            status = session.call("run", arguments=given, stdout=str(files[0]), stderr=str(files[1]), timeout=600)
        output, errors = (file.read_text().splitlines() for file in files)
        print(*output, *errors, sep="\n")
        assert not [line for line in (*output, *errors) if "Traceback" in line or "INTERNALERROR" in line]
        return pytest.RunResult(pytest.ExitCode(status), output, errors, time.perf_counter() - start)

    return run


@pytest.fixture
def promote(pytester: pytest.Pytester, run_pytest: Session) -> Session:
    """Runs pytest on a test module's source, if given, and promotes its tests to an emulated Vertex AI."""

    def run(source: str, *arguments: str) -> pytest.RunResult:
        if source:
            pytester.makepyfile(test_there=source)
        return run_pytest("-m", "tpu", "--t5x-vertex=emulated", *arguments)

    return run
