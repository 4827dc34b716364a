"""Options for compiling programs cheaply, and the cache that keeps compiled ones between runs.

JAX can bound its cache itself (``jax_compilation_cache_max_size``), but needs filelock for that, and a process that is
killed between its two writes leaves an entry that stops every later write. Runs here are killed whenever they pass a
limit, so the harness bounds the cache itself, once per session, and JAX sees a cache without a bound.
"""

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import warnings
import zlib
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from t5x_harness.system.own_folders import foreign_file, foreign_folder
from t5x_harness.variables import CACHE_VARIABLE
from t5x_harness.version import version_of

MAX_BYTES = 2 * 1024**3
FOLDER = "compile-cache"
_LEAST_ROOM = 16 * 1024**2  # for the programs of one small run


_OPTIONS = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
# XLA ends a process that names an option it does not know.
_SINCE_0_10 = (
    "--xla_cpu_opt_preset=FAST_COMPILE",
    "--xla_cpu_parallel_codegen_split_count=1",  # splitting a small program costs more than it saves
)
_ONLY_0_10 = ("--xla_cpu_use_fusion_emitters=false",)


def compile_cheaply(environment: MutableMapping[str, str] = os.environ) -> None:
    """Adds options that make programs cheap to compile, because here they compile for seconds and run for moments.

    They change which instructions are chosen, and therefore the order of sums and the fusion of products with sums, so
    that single bits of a float differ from the results of XLA's default options; ``--exact-numerics`` leaves the
    options out. They go to ``XLA_FLAGS``, except those that the user set there, before JAX has a backend.

    Args:
      environment: the environment to change.
    """
    import importlib.metadata

    flags = environment.get("XLA_FLAGS", "")
    version = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("jaxlib"))
    minor = (int(version[1]), int(version[2])) if version else (0, 0)
    known = _OPTIONS + (_SINCE_0_10 if minor >= (0, 10) else ()) + (_ONLY_0_10 if minor == (0, 10) else ())
    added = [option for option in known if option.split("=")[0] not in flags]
    environment["XLA_FLAGS"] = " ".join(filter(None, [flags, *added]))


def harness_cache_folder(env: Mapping[str, str]) -> Path | None:
    """Returns the folder for everything that the harness keeps for later runs.

    Args:
      env: environment variables to look at.

    Returns:
      The folder, which need not exist; None if ``T5X_HARNESS_CACHE_DIR`` is ``off`` or there is no home folder.
    """
    chosen = env.get(CACHE_VARIABLE, "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen).absolute()
    cache_home = env.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache_home):  # the XDG specification: a relative path is to be ignored
        return Path(cache_home, "t5x-harness")
    return Path(env["HOME"], ".cache", "t5x-harness") if env.get("HOME") else None


def default_cache_folder(env: Mapping[str, str]) -> Path | None:
    """Returns the folder for the compiled programs of this machine and this JAX.

    ``T5X_HARNESS_CACHE_DIR`` names the harness's cache folder; by default it is ``t5x-harness`` in the XDG cache home.
    Below it, JAX's version and the CPU's instruction set are distinguished, because a home folder may be shared by
    machines and code compiled for one of them can crash on another. JAX's compression of programs is also
    distinguished: it depends on what else is installed, and JAX cannot read programs that were compressed otherwise.

    Args:
      env: environment variables to look at.

    Returns:
      The folder, which need not exist; None if ``T5X_HARNESS_CACHE_DIR`` is ``off``, JAX is not installed, or there is
      no home folder.
    """
    root = harness_cache_folder(env)
    if root is None or (version := version_of("jax")) is None:
        return None
    compression = "zstd" if importlib.util.find_spec("zstandard") else "zlib"
    return root / FOLDER / f"jax-{version}-{_instruction_set()}-{compression}"


def compile_cache_environment(folder: Path | str | None, *, max_bytes: int = MAX_BYTES) -> dict[str, str]:
    """Prepares a compile cache and returns the variables that make JAX use it for every program.

    Several runs and sessions may use one folder at the same time. Its programs are run unchecked, so a folder that
    other users may write to is not used, and their entries are removed.

    Args:
      folder: the cache, which is made if it is missing and trimmed if it is too large; None for no cache.
      max_bytes: the bytes that the cache may hold now; it grows until it is prepared the next time.

    Returns:
      Environment variables for JAX; empty if there is no cache or, with a warning, if it cannot be used.
    """
    if folder is None:
        return {}
    folder = Path(folder).resolve()  # a link could be changed later
    try:
        for path in reversed((folder, *folder.parents)):
            path.mkdir(mode=0o700, exist_ok=True)  # accessible only to this user
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write into {folder}")
        if reason := foreign_folder(folder):
            raise PermissionError(f"{reason}, and what a cache holds is run")
        trim_cache(folder, max_bytes=max_bytes)
        room = shutil.disk_usage(folder).free
    except OSError as error:
        warnings.warn(
            f"the compile cache cannot be used, so every run compiles anew ({error}); "
            f"set {CACHE_VARIABLE} to a folder that you alone can write to, or to off",
            stacklevel=2,
        )
        return {}
    if room < _LEAST_ROOM:
        warnings.warn(
            f"no room for the compile cache: the disk of {folder} has {room // 1024} KB left, so what is not in it yet "
            f"is compiled in every run; make room, or set {CACHE_VARIABLE} to a folder on another disk",
            stacklevel=2,
        )
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def trim_cache(folder: Path, *, max_bytes: int) -> int:
    """Removes other users' entries, and then the least recently used entries until the rest fits.

    Args:
      folder: a cache. In the folder that :func:`default_cache_folder` names, the caches of other versions also count.
      max_bytes: the bytes that may remain.

    Returns:
      The number of bytes that were removed.
    """
    pattern = "*-cache"
    entries = folder.parent.glob(f"jax-*/{pattern}") if folder.parent.name == FOLDER else folder.glob(pattern)
    found = []
    removed = 0
    for entry in entries:
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another session trims it, or owns that folder
            state = entry.lstat()
            if foreign_file(state):
                entry.unlink()
                removed += state.st_size
            else:
                found.append((max(state.st_atime, state.st_mtime), state.st_size, entry))
    surplus = sum(size for _, size, _ in found) - max_bytes
    for _, size, entry in sorted(found):
        if removed >= surplus:
            break
        entry.unlink(missing_ok=True)
        removed += size
    return removed


def _instruction_set() -> str:
    """Returns a short key that differs between CPUs for which the compiler generates different code."""
    kinds = [platform.machine()]
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                kinds.append(value.strip())
            elif name.strip() in ("flags", "Features"):
                kinds += sorted(value.split())
                break
    return f"{zlib.crc32(chr(10).join(kinds).encode()):08x}"
