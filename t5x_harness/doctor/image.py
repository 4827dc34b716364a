"""Checks of a container image for jobs: ``t5x-harness doctor --image``, run inside it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from t5x_harness.doctor.check import Defect, Environment, Looked, check, error
from t5x_harness.symptoms.recognize import recognize
from t5x_harness.variables import COMMIT_VARIABLE, REQUIREMENTS_VARIABLE

_REBUILD = "build the image anew from docker/Dockerfile"
_SHORT = 12
_IMPORT_SECONDS = 300.0
_NOT_IMPORTED = "t5x.main and its run modes cannot be imported"
_RUN_MODES = ("train", "eval", "infer")
_OF_EMULATION = ("STORAGE_EMULATOR_HOST", "T5X_HARNESS_GCS_ROOT", "TENSORSTORE_GCS_HTTP_URL", "T5X_HARNESS_SLICE")
_FORCED_DEVICES = "xla_force_host_platform_device_count"


@check(
    "IMG01",
    "T5X at its commit",
    why=(
        "A job runs the T5X of its image, so the image names the commit of T5X in a variable and has to have that "
        "commit installed. The embedded T5X is for machines without T5X, not for jobs."
    ),
    of_image=True,
)
def pinned_t5x(environment: Environment) -> Looked:
    """Compares the commit of T5X with the one that the image was built with."""
    runtime, commit = environment.runtime, environment.variables.get(COMMIT_VARIABLE, "")
    findings = []
    if runtime.kind != "installed":
        message = f"{runtime.note}: jobs would run the harness's embedded runtime"
        findings.append(error(message, _REBUILD))
    elif not commit:
        message = f"{COMMIT_VARIABLE} is not set, so it is not known which T5X was meant"
        findings.append(error(message, f"ENV {COMMIT_VARIABLE}=… in the Dockerfile"))
    elif f"commit {commit[:_SHORT]}" not in runtime.version:
        message = f"T5X {runtime.version} is installed, and the image was to have commit {commit[:_SHORT]}"
        findings.append(error(message, _REBUILD))
    return str(runtime), findings


@check(
    "IMG02",
    "entry point",
    why=(
        "The entry point of an image is `python -m t5x.main`, which imports the run modes. If one is missing or cannot "
        "be imported, the job ends only after its TPU was started."
    ),
    of_image=True,
)
def entry_point(environment: Environment) -> Looked:
    """Looks for ``t5x.main`` and the run modes, and imports them if they exist."""
    folder = Path(environment.runtime.location)
    missing = [name for name in ("main", *_RUN_MODES) if not (folder / f"{name}.py").is_file()]
    findings = [error(f"{folder} has no {name}.py", _REBUILD) for name in missing]
    if not missing and (fault := _fault_of_import(environment)):
        findings.append(fault)
    return f"python -m t5x.main --run_mode={'|'.join(_RUN_MODES)}", findings


_IMPORTS = """
import importlib, sys
sys.path.append(sys.argv[1])  # for a T5X that only the harness finds; an installed one comes first, as in a job
for name in sys.argv[2:]:
    importlib.import_module(f"t5x.{name}")
"""


def _fault_of_import(environment: Environment) -> Defect | None:
    """Imports T5X's programs in a separate process, as a job does; names the package that is wrong if this fails."""
    folder = Path(environment.runtime.location).parent
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTS, str(folder), "main", *_RUN_MODES],
            env={**environment.variables, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},  # no waiting for a TPU
            capture_output=True,
            text=True,
            check=False,
            timeout=_IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return error(f"{_NOT_IMPORTED}: that had not ended after {_IMPORT_SECONDS:g} s", _REBUILD)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    reason = next(reversed(lines), f"exit status {done.returncode}")
    known = next((symptom for symptom in recognize(lines) if symptom.command), None)
    if known is None:
        return error(f"{_NOT_IMPORTED}: {reason}", _REBUILD)
    return error(f"{_NOT_IMPORTED}: {known.message} ({known.code}: {reason})", known.command)


@check(
    "IMG03",
    "pinned versions",
    why=(
        "Every distribution has to have the version that the image's requirements file names. An image that was built "
        "anew with other versions fails on the TPU, often without a log."
    ),
    of_image=True,
)
def pinned_versions(environment: Environment) -> Looked:
    """Compares what is installed with the file that the image was built from."""
    name = environment.variables.get(REQUIREMENTS_VARIABLE)
    if not name or not Path(name).is_file():
        message = f"there is no file with the image's versions: {REQUIREMENTS_VARIABLE} is {name or 'not set'}"
        fix = f"copy docker/requirements.txt into the image, and name it in {REQUIREMENTS_VARIABLE}"
        return "not checked", [error(message, fix)]
    lines = [line.partition("#")[0].strip() for line in Path(name).read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line]
    return f"{len(lines)} of {name}", [f for line in lines for f in _drift(line, environment)]


@check(
    "IMG04",
    "TPU library",
    why=(
        "JAX needs libtpu at the version that its extra `tpu` asks for. Without it, JAX computes on the CPU of the TPU "
        "machine and only logs a warning."
    ),
    of_image=True,
)
def tpu_library(environment: Environment) -> Looked:
    """Compares libtpu with the version that JAX's extra ``tpu`` requires."""
    jax = environment.by_name.get("jax")
    if jax is None:
        return "no JAX", [error("jax is not installed", _REBUILD)]
    asked = next((r for r in map(Requirement, jax.requires) if r.name == "libtpu"), None)
    version = environment.version("libtpu")
    bounds = str(asked.specifier) if asked is not None else ""
    findings = []
    if version is None:
        fix = f"add libtpu{bounds} to docker/requirements.txt"
        findings.append(error(f"libtpu is not installed, and {jax} needs it for a TPU", fix))
    elif asked is not None and not asked.specifier.contains(Version(version), prereleases=True):
        message = f"{jax} asks for libtpu{bounds}, but {version} is installed"
        findings.append(error(message, f"libtpu{bounds} in docker/requirements.txt"))
    return f"libtpu {version or 'is missing'}, {jax}", findings


@check(
    "IMG05",
    "shipped tests",
    why=(
        "A test with `ship=True` runs inside the job, so the image needs pytest and t5x-harness as installed "
        "distributions."
    ),
    of_image=True,
)
def shipped_tests(environment: Environment) -> Looked:
    """Looks for pytest, and for the harness as a distribution."""
    found = {name: environment.version(name) for name in ("pytest", "t5x-harness")}
    findings = [
        error(f"{name} is not installed, so no test can be shipped to the image", _REBUILD)
        for name, version in found.items()
        if version is None
    ]
    return ", ".join(f"{name} {version}" for name, version in found.items() if version), findings


@check(
    "IMG06",
    "nothing emulated",
    why=(
        "Variables of an emulation on a developer's machine, such as STORAGE_EMULATOR_HOST, would keep a job from its "
        "TPU or its buckets if they were built into the image."
    ),
    of_image=True,
)
def emulation_left(environment: Environment) -> Looked:
    """Looks for variables that would keep a job from its TPU and its buckets."""
    variables = environment.variables
    left = [name for name in _OF_EMULATION if variables.get(name)]
    left += ["XLA_FLAGS"] if _FORCED_DEVICES in variables.get("XLA_FLAGS", "") else []
    left += ["JAX_PLATFORMS"] if variables.get("JAX_PLATFORMS", "") == "cpu" else []
    findings = [
        error(f"{name}={variables[name]} is set in the image", f"take {name} out of the Dockerfile") for name in left
    ]
    return ("no variable of an emulation" if not left else ", ".join(left)), findings


def _drift(line: str, environment: Environment) -> Iterator[Defect]:
    """Yields what is wrong with one line of the file, or with what that line installs."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        yield error(f"{line!r} is not a requirement", "write NAME==VERSION")
        return
    name = canonicalize_name(requirement.name)
    pins = [clause.version for clause in requirement.specifier if clause.operator == "==" and "*" not in clause.version]
    if len(pins) != 1:
        yield error(f"{line!r} leaves the version open", f"write {name}=={environment.version(name) or 'VERSION'}")
        return
    version = environment.version(name)
    if version is None or Version(version) != Version(pins[0]):
        yield error(f"{name} is to be {pins[0]}, and {version or 'nothing'} is installed", _REBUILD)
