"""A separate Python environment for each process of a job, so that a job's installations do not affect other processes.

The user's environment, in which the server runs, stands in for the Python of a container's image. In front of it, each
process has a virtual environment that is empty at first. pip uses no index, and installs into the virtual environment.
It treats the packages of the user's environment as installed, and does not change them.

The service installs the packages of python_package_spec with pip. Here their modules are imported from the unpacked
packages, because no package index can be reached. Their dependencies have to be installed already. No code of a package
runs before the job runs it, and nothing is written outside its folder.
"""

import importlib.util
import os
import re
import shlex
import shutil
import site
import stat
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO

from t5x_harness.buckets.emulated import Store
from t5x_harness.google.product import PACKAGE, PRODUCT

# The variables of this machine that jobs get. They get nothing else from the server's own environment: neither a user's
# credentials nor a user's settings.
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")

_FOLDER, _USER_BASE = ".python", ".local"
_BIN, _IMAGE_BIN = "bin", "image-bin"
_PROGRAMS = Path(sys.executable).parent  # of the user's environment

# The site-packages of the user's environment replace those of the base interpreter. The line runs before site looks for
# them, so they come last, and their own .pth files are read as usual.
_PATH_FILE = f"_{PACKAGE}_image.pth"
_PATH_LINE = (
    "import site, sys; site.getsitepackages = lambda prefixes=None, sys=sys, of=site.getsitepackages: "
    "of([sys.prefix]) + {folders!a} if prefixes is None else of(prefixes); sys.path += {pip!a}\n"
)

_MAJOR, _MINOR = sys.version_info[:2]
_VERSIONS = ("", f"{_MAJOR}", f"{_MAJOR}.{_MINOR}")
_PYTHONS = frozenset(f"python{version}" for version in _VERSIONS)
_PIPS = frozenset(f"pip{version}" for version in _VERSIONS)

_PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'
_IMAGE_SCRIPT = '#!/bin/sh\nexec "${{0%/*}}/../{bin}/python" {folder}/"${{0##*/}}" "$@"\n'

_HINTS = {
    # Without its marker: pip ignores a requirement whose marker asks for an extra that was not named.
    re.compile(r"ERROR: No matching distribution found for (?P<name>[^;]+?)(?:;.*)?(?: \(from .*\))?"): (
        f"pip of a job asks no index: it finds what is installed in the environment that {PRODUCT} runs in. Install "
        "it there: {python} -m pip install {name}"
    ),
    re.compile(r".*error: invalid command 'bdist_wheel'"): (
        f"pip of a job builds packages with what is installed in the environment that {PRODUCT} runs in. Install "
        "what builds this one there: {python} -m pip install 'setuptools>=70.1'"
    ),
    re.compile(r".*: No module named pip"): (
        f"neither the environment that {PRODUCT} runs in nor its Python's ensurepip has pip. Install it there"
    ),
    re.compile(r"ModuleNotFoundError: No module named 'hypertune'"): (
        f"the images of Vertex AI have cloudml-hypertune; what stands for them is the environment that {PRODUCT} runs "
        "in. Install it there: {python} -m pip install 'cloudml-hypertune>=0.1.0.dev6'"
    ),
    re.compile(r"ModuleNotFoundError: No module named '(?!hypertune')(?P<name>[\w.]+)'.*"): (
        f"what stands for a job's image is the environment that {PRODUCT} runs in ({{python}}), and it has no module "
        "{name}. If the image has it, install its package there; a module of your own has to come with the job, in its "
        "Python package or its staged files"
    ),
    re.compile(r".*\.BackendUnavailable: .*| *error: backend-unavailable"): (
        f"pip of a job builds packages with what is installed in the environment that {PRODUCT} runs in. Install "
        "the build system there that the package's pyproject.toml names; without one it is setuptools"
    ),
}


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this machine that the processes of jobs get."""
    return {name: environment[name] for name in _KEPT if name in environment}


def variables(home: Path, path: str) -> dict[str, str]:
    """Returns the variables of a process with its own HOME and, in ``path``, additional folders of programs."""
    python = home / _FOLDER
    bundled = _bundled_pip()
    return {
        "PATH": os.pathsep.join([*map(str, own_programs(home)), path]),
        "VIRTUAL_ENV": str(python),
        # These are the defaults; they are set because a job may change its HOME.
        "PYTHONUSERBASE": str(home / _USER_BASE),
        "PIP_CACHE_DIR": str(home / ".cache" / "pip"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the value of build_isolation
        "PIP_REQUIRE_VIRTUALENV": "1",  # for the pip of another Python on this machine
        **({"PIP_FIND_LINKS": bundled.parent.as_uri()} if bundled else {}),  # for pip install --upgrade pip
    }


def own_programs(home: Path) -> list[Path]:
    """Returns the folders that come first on PATH: the process's own, and the folder of the user's Python."""
    return [home / _FOLDER / _BIN, home / _FOLDER / _IMAGE_BIN, _PROGRAMS]


def program(home: Path, word: str) -> str:
    """Returns the program to start for a command's first word, which is a name or a path.

    Programs of the user's environment run in the process's own, which is in the folder of its HOME.
    """
    folder, name = os.path.split(word)
    if folder == str(_PROGRAMS):
        if name in _PYTHONS | _PIPS:
            return str(home / _FOLDER / _BIN / name)
        if name in _scripts():
            return str(home / _FOLDER / _IMAGE_BIN / name)
    return word


def make(home: Path) -> None:
    """Makes the environment of a process that is about to start, in the empty folder of its HOME."""
    python = home / _FOLDER
    _Builder(system_site_packages=True, symlinks=True).create(python)  # True, because otherwise pip refuses --user
    # Within the environment, so that pip may replace packages that are installed there.
    (python / "user").mkdir()
    (home / _USER_BASE).symlink_to(Path(_FOLDER, "user"))


def hints(lines: Iterable[str]) -> list[str]:
    """Returns advice for messages in a job's output that a package is missing or could not be installed."""
    found = []
    for line in lines:
        for pattern, hint in _HINTS.items():
            if match := pattern.fullmatch(line):
                found.append(hint.format(python=sys.executable, name=shlex.quote(match.groupdict().get("name") or "")))
    return found


class _Builder(venv.EnvBuilder):
    """Makes an environment without activation scripts, and with the user's environment behind it."""

    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Adds pip, and the scripts of the user's environment, so that both run with the new environment's Python."""
        programs = Path(context.bin_path)
        for name in _PIPS:
            _write_program(programs / name, _PIP)
        scripts = programs.parent / _IMAGE_BIN
        scripts.mkdir()
        one = scripts / ".script"
        _write_program(one, _IMAGE_SCRIPT.format(bin=_BIN, folder=shlex.quote(str(_PROGRAMS))))
        for name in _scripts():
            (scripts / name).symlink_to(one.name)

    def post_setup(self, context: SimpleNamespace) -> None:
        """Puts the user's environment in place of the system's site-packages."""
        packages = sysconfig.get_path("purelib", "venv", {"base": context.env_dir})
        bundled = _bundled_pip()
        folders = [*([site.getusersitepackages()] if site.ENABLE_USER_SITE else []), *site.getsitepackages()]
        line = _PATH_LINE.format(folders=folders, pip=[str(bundled)] if bundled else [])
        Path(packages, _PATH_FILE).write_text(line, encoding="ascii")


def _bundled_pip() -> Path | None:
    """Returns the wheel of pip that comes with Python, or None if the user's environment has pip, or there is no wheel.

    An environment that uv has made has no pip.
    """
    ensurepip = importlib.util.find_spec("ensurepip")
    if importlib.util.find_spec("pip") or ensurepip is None or ensurepip.origin is None:
        return None
    return next(Path(ensurepip.origin).parent.glob("_bundled/pip-*.whl"), None)


def _scripts() -> list[str]:
    """Returns the names of the programs of the user's environment that its Python runs."""
    return [entry.name for entry in os.scandir(_PROGRAMS) if entry.is_file() and _runs_python(entry.path)]


def _runs_python(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(1024)
    except OSError:
        return False
    # If the path is too long for the first line, it is in the second, which a shell reads.
    return head.startswith(b"#!") and f"{_PROGRAMS}/python".encode() in b"".join(head.splitlines()[:2])


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_ZIP_SUFFIXES = (".whl", ".zip", ".egg")
MOST_BYTES = 1 << 30
"""The largest total size of the files in one package, in bytes: a small archive can hold any number of zeros."""


class PackageError(Exception):
    """A package is missing, or cannot be used; the message says which, and why."""


def fetch_packages(uris: Iterable[str], store: Store, folder: Path) -> list[Path]:
    """Unpacks packages, each into its own folder below a new one; returns the folders for the import path, in order.

    Args:
      uris: ``gs://`` addresses of source distributions and wheels.

    Raises:
      PackageError: one of them cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for number, uri in enumerate(uris):
        archive = store.local(uri) if uri.startswith("gs://") else None
        if archive is None or not archive.is_file():
            raise PackageError(f"the package {uri} of python_package_spec.package_uris is not there")
        target = folder / str(number)
        unpack(archive, target)
        found += import_path(target)
    return found


def unpack(archive: Path, target: Path) -> None:
    """Unpacks an archive into a new folder. Links, devices and paths out of the folder are refused.

    If the archive is refused or cannot be read, it removes the folder and raises PackageError.
    """
    target.mkdir(parents=True)
    try:
        if archive.name.endswith(_TAR_SUFFIXES):
            _unpack_tar(archive, target)
        elif archive.name.endswith(_ZIP_SUFFIXES):
            _unpack_zip(archive, target)
        else:
            known = ", ".join((*_TAR_SUFFIXES[:1], *_ZIP_SUFFIXES[:2]))
            raise PackageError(f"the package {archive.name} is not an archive that is known here: {known}")
    except (PackageError, tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        shutil.rmtree(target)
        if isinstance(error, PackageError):
            raise
        raise PackageError(f"the package {archive.name} cannot be unpacked: {error}") from error


def import_path(folder: Path) -> list[Path]:
    """Returns the folders in an unpacked package from which its modules are imported.

    For a wheel it is the folder itself; for a source distribution the folder of the project, and ``src`` in it.
    """
    top = [entry for entry in folder.iterdir() if entry.is_dir()]
    is_source = len(top) == 1 and any((top[0] / name).is_file() for name in ("setup.py", "pyproject.toml", "PKG-INFO"))
    root = top[0] if is_source else folder
    source = root / "src"
    return [source, root] if is_source and source.is_dir() else [root]


def _unpack_tar(archive: Path, target: Path) -> None:
    total = 0
    with tarfile.open(archive) as tar:
        for entry in tar:
            path = target / _checked(archive, entry.name)
            if not (entry.isfile() or entry.isdir()):
                raise PackageError(f"the package {archive.name} holds {entry.name!r}, which is {_kind(entry)}")
            total = _counted(archive, total, entry.size)
            if entry.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif (source := tar.extractfile(entry)) is not None:
                _write(path, source, executable=bool(entry.mode & stat.S_IXUSR))


def _unpack_zip(archive: Path, target: Path) -> None:
    total = 0
    with zipfile.ZipFile(archive) as zipped:
        for entry in zipped.infolist():
            path = target / _checked(archive, entry.filename)
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise PackageError(f"the package {archive.name} holds {entry.filename!r}, which is not a file")
            total = _counted(archive, total, entry.file_size)
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                with zipped.open(entry) as source:
                    _write(path, source, executable=bool(mode & stat.S_IXUSR))


def _checked(archive: Path, name: str) -> PurePosixPath:
    """Returns a name in an archive as a path below the archive's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise PackageError(f"the package {archive.name} holds {name!r}, which leads out of its folder")
    return path


def _counted(archive: Path, total: int, size: int) -> int:
    if total + size > MOST_BYTES:
        raise PackageError(f"the package {archive.name} holds more than {MOST_BYTES >> 20} MB")
    return total + size


def _write(path: Path, source: IO[bytes], *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # An existing file is never written to: an archive that holds a name twice is refused.
    with open(path, "xb") as file:
        shutil.copyfileobj(source, file)
    path.chmod(0o755 if executable else 0o644)


def _kind(entry: tarfile.TarInfo) -> str:
    if entry.issym() or entry.islnk():
        return f"a link to {entry.linkname!r}"
    return "a device" if entry.isdev() else "no file"
