"""Checks of what runs need: CPU devices, the TPU compiler, storage, ``/gcs``, and libraries that load together."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

from packaging.version import Version

from t5x_harness.doctor.check import Environment, Looked, check, error, warning
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import refusal
from t5x_harness.system.diagnosis import describe_returncode

_FIRST_JAX = Version("0.5.0")  # has jax_num_cpu_devices
_REPLACED = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES")


@check(
    "ENV07",
    "forced CPU devices",
    why=(
        "A slice is emulated by as many CPU devices as it has chips, which JAX makes from version 0.5.0 on. Variables "
        "that choose other devices are replaced in runs."
    ),
)
def forced_devices(environment: Environment) -> Looked:
    """Looks at JAX's version and at the variables that choose devices."""
    version = environment.version("jax")
    if version is None:
        return "not checked: jax is not installed", []
    if Version(version) < _FIRST_JAX:
        bound = environment.recorded_requirement("jax")
        old = error(
            f"jax {version} cannot be given a number of CPU devices from Python; jax {_FIRST_JAX} can",
            f"python -m pip install 'jax{bound.specifier if bound else f'>={_FIRST_JAX}'}'",
        )
        return f"jax {version}", [old]
    chosen = [f"{n}={v}" for n in _REPLACED if (v := environment.variables.get(n)) not in (None, "cpu")]
    if "xla_force_host_platform_device_count" in environment.variables.get("XLA_FLAGS", ""):
        chosen.append("the device count in XLA_FLAGS")
    replaced = f"; runs replace {', '.join(chosen)}" if chosen else ""
    return f"jax {version} on {os.cpu_count()} cores{replaced}", []


@check(
    "ENV08",
    "TPU compiler",
    why="libtpu is the compiler for TPUs. Runs on this machine do not need it; an image for jobs does (IMG04).",
)
def tpu_compiler(environment: Environment) -> Looked:
    """Reports whether libtpu is installed."""
    version = environment.version("libtpu")
    return (f"libtpu {version}" if version else "libtpu is not installed (not needed for runs here)"), []


_ENDPOINT = "TENSORSTORE_GCS_HTTP_URL"


@check(
    "ENV09",
    "storage endpoint",
    why=(
        "TENSORSTORE_GCS_HTTP_URL takes the address of the storage service alone. With a bucket in its path, as seen "
        "in forums, tensorstore, which reads and writes checkpoints, sends every request to a wrong address and "
        "authentication fails."
    ),
)
def storage_endpoint(environment: Environment) -> Looked:
    """Looks at the variable from which tensorstore, which reads and writes checkpoints, takes its address."""
    url = environment.variables.get(_ENDPOINT)
    if not url:
        return "tensorstore's own", []
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        problem = f"{_ENDPOINT} is {url!r}, which is not an http address"
    elif parts.path.strip("/"):
        problem = f"{_ENDPOINT} is {url!r}, with a path: tensorstore would ask for {url.rstrip('/')}/storage/v1/…"
    else:
        return f"{url}, from {_ENDPOINT}", []
    return url, [error(problem, f"unset {_ENDPOINT}")]


_ALLOW = (
    "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000; in Docker, run the "
    "container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)


@check(
    "ENV10",
    "/gcs paths",
    why=(
        "Runs see `/gcs` as a mount of their own, which needs user namespaces. Where the kernel or a container forbids "
        "these, T5X finds such paths because its own file functions are patched, but native code that the user's "
        "modules hand such a path to may not. The warning goes away with the command that it prints, or, in Docker, "
        "with two security options."
    ),
)
def gcs_paths(_environment: Environment) -> Looked:
    """Mounts ``/gcs`` in a separate process that ends at once."""
    if refused := refusal(MountMode.FOLDER):
        patched = warning(
            f"runs get no /gcs of their own ({refused}): T5X finds such paths, but native code that is given one "
            "by the user's own modules may not",
            _ALLOW,
        )
        return "patched in runs, and rewritten in the words and variables of commands", [patched]
    over = " over the /gcs of this machine" if os.path.isdir("/gcs") else ""
    fuse_refused = refusal(MountMode.FUSE)
    fuse = f"; not as FUSE has it ({fuse_refused})" if fuse_refused else "; also as FUSE has it"
    return f"mounted for each run alone{over}{fuse}", []


_IMPORT_SECONDS = 300.0


@check(
    "ENV13",
    "Triton after TensorFlow",
    why=(
        "PyTorch's builds for GPUs bring Triton, and some of its releases end a process that has loaded TensorFlow, "
        "with a signal and without a message. T5X loads TensorFlow first, so a task module that loads Triton by way of "
        "PyTorch or transformers ends its run, here and in a job. It is tried in a process of its own where both are "
        "installed. `t5x-harness convert --check` runs transformers in a process without TensorFlow."
    ),
)
def triton_after_tensorflow(environment: Environment) -> Looked:
    """Imports one library after the other in a separate process."""
    tensorflow, triton = (environment.by_name.get(name) for name in ("tensorflow", "triton"))
    if tensorflow is None or triton is None:
        return "not both are installed", []
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "import tensorflow; import triton"],
            env=environment.variables,
            capture_output=True,
            check=False,
            timeout=_IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"not checked: importing both had not ended after {_IMPORT_SECONDS:g} s", []
    if done.returncode >= 0:  # a library that raises is reported where it is imported
        return f"{triton} loads after {tensorflow}", []
    killed = warning(
        f"a process that imports {tensorflow} and then {triton} {describe_returncode(done.returncode)}. So is a "
        "run whose modules load Triton by way of PyTorch or transformers",
        "install PyTorch's build for CPUs, which brings no Triton, and: python -m pip uninstall -y triton",
    )
    return f"{triton} does not load after {tensorflow}", [killed]
