"""Packages that a job installs with pip belong to the job, and leave the user's environment unchanged."""

import io
import os
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pip", reason="pip of jobs is that of the environment")

from job_service import pool, tar

from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.endings import JobState

# A build system in the source distribution itself, which also has the finished wheel. Its requirements are installed.
BUILD_SYSTEM = """
import os, shutil

def build_wheel(folder, *_):
    shutil.copy("made.whl", os.path.join(folder, NAME))
    return NAME
"""

# Even if the harness is broken, these tests must not change the environment in which they run.
OWN_PIP = 'test "$(command -v pip)" = "$HOME/.python/bin/pip" || exit 9'


def wheel(name: str, release: str = "1", requires: str = "", script: str = "", **modules: str) -> bytes:
    """Returns a wheel with modules, and with a program if ``script`` names the function that it calls."""
    info = f"{name}-{release}.dist-info"
    files = {f"{module.replace('__', '/')}.py": text for module, text in modules.items()}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n" + (
        f"Requires-Dist: {requires}\n" if requires else ""
    )
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {script}\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


def sdist(path: Path, built: bytes, release: str = "1") -> None:
    """Writes a source distribution from which such a wheel is built."""
    name = path.name.partition("-")[0]
    files = {
        "pyproject.toml": b"[build-system]\nrequires = ['pluggy']\nbuild-backend = 'build'\nbackend-path = ['.']\n",
        "build.py": f"NAME = '{name}-{release}-py3-none-any.whl'\n{BUILD_SYSTEM}".encode(),
        "made.whl": built,
    }
    tar(path, {f"{name}-{release}/{file}": body for file, body in files.items()})


def listing() -> Mapping[str, tuple[int, int]]:
    """Returns the files of the user's environment with sizes and times, except for bytecode, which imports write."""
    folders = [*site.getsitepackages(), str(Path(sys.executable).parent)]
    return {
        os.path.join(folder, name): (status.st_size, status.st_mtime_ns)
        for top in folders
        for folder, _, names in os.walk(top)
        if not folder.endswith("__pycache__")
        for name in names
        for status in [os.lstat(os.path.join(folder, name))]
    }


@pytest.fixture
def runs(service: Any) -> Callable[..., list[str]]:
    """Returns a function that runs a shell script in a job, which has to succeed, and returns the job's output."""

    def run(script: str) -> list[str]:
        job = service.ended(service.shell(f"{OWN_PIP}; {script}"))
        said: list[str] = service.said(job)
        assert job.state == JobState.SUCCEEDED, said
        return said

    return run


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Checks that the test does not change the user's environment."""
    before = listing()
    yield
    assert listing() == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("option", ["--user", ""])
def test_a_package_is_built_and_installed_and_run(bucket: Path, runs: Callable[..., list[str]], option: str) -> None:
    built = wheel("trainer", requires="pluggy>=1", trainer__task="import pluggy; print('trains')")
    sdist(bucket / "trainer-1.tar.gz", built)
    said = runs(
        f"pip install --upgrade pip && pip3 install -q {option} /gcs/b/trainer-1.tar.gz && python3 -m trainer.task"
    )
    assert said[0].startswith("Requirement already satisfied: pip in ")
    assert said[1:] == ["trains"]


@pytest.mark.journey
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("option", ["--user", ""])
def test_another_release_of_an_installed_package_is_the_job_s_alone(
    bucket: Path, runs: Callable[..., list[str]], option: str
) -> None:
    for release in ("0.1", "0.2"):
        path = bucket / f"iniconfig-{release}-py3-none-any.whl"
        path.write_bytes(wheel("iniconfig", release, iniconfig=f"RELEASE = '{release}'"))
    tell = "python -c 'import importlib.metadata as m, iniconfig; print(m.version(\"iniconfig\"), iniconfig.RELEASE)'"
    install = f"pip install -q {option} /gcs/b/iniconfig"
    said = runs(
        f"{install}-0.1-py3-none-any.whl; {tell}; {install}-0.2-py3-none-any.whl; {tell}; ls -a ~/.local/lib/python*/*"
        "; pip uninstall -q -y iniconfig; pip uninstall -q -y iniconfig; pip list"
    )
    assert [line for line in said if line.startswith("0.")] == ["0.1 0.1", "0.2 0.2"]
    assert ("iniconfig-0.2.dist-info" in said, "iniconfig-0.1.dist-info" in said) == (option == "--user", False)
    assert ["iniconfig", version("iniconfig")] in [line.split() for line in said]  # the user's, still installed


def test_what_is_required_and_not_installed_fails_the_job(service: Any, bucket: Path) -> None:
    (bucket / "trainer-1-py3-none-any.whl").write_bytes(wheel("trainer", requires="not-on-this-machine==2.0"))
    job = service.ended(service.shell("pip install -q --user /gcs/b/trainer-1-py3-none-any.whl && echo went on"))
    assert job.error.message.startswith("The replica workerpool0-0 exited with a non-zero status of 1.")
    said = service.said(job)
    assert "ERROR: No matching distribution found for not-on-this-machine==2.0" in [
        each.partition(" (")[0] for each in said
    ]
    assert "went on" not in said
    assert any(line.startswith("pip of a job asks no index: ") for line in service.said(job, "service"))


NO_BACKEND = "Install the build system there that the package's pyproject.toml names; without one it is setuptools"
NOT_FOUND = "ERROR: No matching distribution found for "


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ModuleNotFoundError: No module named 'hypertune'", "{pip} 'cloudml-hypertune>=0.1.0.dev6'"),
        (
            "ModuleNotFoundError: No module named 'xgboost.sklearn'; 'xgboost' is not a package",
            f"the environment that t5x-harness runs in ({sys.executable}), and it has no module xgboost.sklearn. If "
            "the image has it, install its package there; a module of your own has to come with the job, in its Python "
            "package or its staged files",
        ),
        (NOT_FOUND + "scikit-learn>=1 (from aiplatform-custom-trainer-script==0.1)", "{pip} 'scikit-learn>=1'"),
        (
            NOT_FOUND + 'mlflow<=2.16.0; python_version < "3.13" and extra == "autologging" (from google[autologging])',
            "{pip} 'mlflow<=2.16.0'",
        ),
        ("  error: invalid command 'bdist_wheel'", "{pip} 'setuptools>=70.1'"),
        (
            "/j/home/.python/bin/python: No module named pip",
            "neither the environment that t5x-harness runs in nor its Python's ensurepip has pip. Install it there",
        ),
        ("  error: backend-unavailable", NO_BACKEND),
        (
            "pip._vendor.pyproject_hooks._impl.BackendUnavailable: Cannot import 'setuptools.build_meta'",
            NO_BACKEND,
        ),
    ],
)
def test_hints(line: str, hint: str) -> None:
    [found] = python_environment.hints(["Processing trainer.tar.gz", line, "done"])
    assert found.endswith(hint.replace("{pip}", f"{sys.executable} -m pip install"))


def test_no_replica_sees_what_another_one_installs(service: Any, bucket: Path) -> None:
    (bucket / "thing-1-py3-none-any.whl").write_bytes(wheel("thing", thing=""))
    scripts = (
        "pip install -q /gcs/b/thing-1-py3-none-any.whl && python -c 'import thing' && touch /gcs/b/mark; "
        "while test -e /gcs/b/mark; do sleep 0.01; done",
        "until test -e /gcs/b/mark; do sleep 0.01; done; python -c 'import thing' || rm /gcs/b/mark; sleep 1000",
    )
    pools = [pool("sh", "-c", script) for script in scripts]
    job = service.ended(service.create({"worker_pool_specs": pools}))
    assert job.state == JobState.SUCCEEDED
    assert service.said(job, "workerpool1-0")[-1] == "ModuleNotFoundError: No module named 'thing'"


def test_what_a_job_s_python_is(runs: Callable[..., list[str]]) -> None:
    program = (
        "import importlib.util as u, os, sys\n"
        "home = os.path.realpath(os.environ['HOME'])\n"
        "print(all(p.startswith(home) for p in (sys.prefix, sys.executable, os.environ['VIRTUAL_ENV'])))\n"
        "print([p for p in sys.path if p.endswith('-packages') and not p.startswith(home)])\n"
        "print(u.find_spec('t5x_harness').origin)\n"
    )
    assert runs(f'python -c "{program}"') == [
        "True",
        str([path for path in site.getsitepackages() if path in sys.path]),
        str(Path(python_environment.__file__).parents[3] / "__init__.py"),
    ]


def test_programs_of_the_environment_and_of_packages(bucket: Path, runs: Callable[..., list[str]]) -> None:
    """The user's programs, such as pytest, find the job's packages; pip install --user puts no program on PATH."""
    built = wheel("thing", script="thing:main", thing="def main(): print('of thing')")
    (bucket / "thing-1-py3-none-any.whl").write_bytes(built)
    said = runs(
        "pip install -q --user /gcs/b/thing-1-py3-none-any.whl; command -v thing || ~/.local/bin/thing"
        "; pip install -q --force-reinstall --no-user /gcs/b/thing-1-py3-none-any.whl; thing"
        "; echo 'def test_thing():\n  import thing' > test_thing.py; pytest -q -p no:cacheprovider test_thing.py"
    )
    assert [line for line in said if line == "of thing" or "passed" in line][:2] == ["of thing", "of thing"]
    assert "1 passed" in said[-1]


@pytest.mark.parametrize("name", ["python", "pytest"])
def test_a_command_that_names_the_environment_s_program_by_its_path_runs_it_in_the_job_s(
    service: Any, bucket: Path, name: str
) -> None:
    program = "import os, sys; assert sys.prefix == os.environ['VIRTUAL_ENV']"
    arguments = ["-c", program] if name == "python" else ["-p", "no:cacheprovider", "/gcs/b/test_it.py"]
    (bucket / "test_it.py").write_text(f"def test_it():\n  {program}\n")
    job = service.ended(service.run(str(Path(sys.executable).parent / name), *arguments))
    assert job.state == JobState.SUCCEEDED, service.said(job)


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the environment is not a virtual one, its base is itself")
def test_the_pip_of_another_python_of_this_machine_is_refused(runs: Callable[..., list[str]]) -> None:
    base = Path(sys.base_prefix, "bin", "python3")
    said = runs(f"{base} -m pip install iniconfig && echo went on; {base} -m pip --version")
    assert "ERROR: Could not find an activated virtualenv (required)." in said
    assert "went on" not in said


@pytest.mark.journey
def test_where_the_environment_has_no_pip_the_one_that_python_brings_is_there(tmp_path: Path) -> None:
    pytest.importorskip("ensurepip")
    venv.create(tmp_path / "of user", symlinks=True)
    (tmp_path / "harness").mkdir()  # because the real folder may also contain pip
    (tmp_path / "harness" / "t5x_harness").symlink_to(Path(python_environment.__file__).parents[3])
    program = (
        "import os, pathlib, subprocess, sys\n"
        "from t5x_harness.google.vertex.jobs import python_environment\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "python_environment.make(home)\n"
        "variables = {'HOME': str(home), **python_environment.variables(home, os.defpath)}\n"
        "subprocess.run(['sh', '-c', sys.argv[2]], env=variables, check=True)\n"
    )
    script = "pip --version && pip install -q --upgrade pip && pip --version"
    told = subprocess.check_output(
        [tmp_path / "of user" / "bin" / "python", "-c", program, tmp_path, script],
        env={"PYTHONPATH": str(tmp_path / "harness")},
        text=True,
    ).splitlines()
    places = [line.split(" from ")[1] for line in told]
    assert "/ensurepip/_bundled/pip-" in places[0]
    assert places[1].startswith(f"{tmp_path}/.python/lib/")


def test_an_environment_within_a_job_s(runs: Callable[..., list[str]]) -> None:
    assert runs(
        "python -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)' | grep -o '/v$'"
    ) == ["/v"]
