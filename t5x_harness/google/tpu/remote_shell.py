"""``ssh``, ``scp`` and ``gcloud`` at the front of PATH.

For a worker of an emulated TPU VM, ``ssh`` and ``scp`` start processes on this machine. For other hosts they are the
real programs. ``gcloud`` is always the real one, but ``gcloud init`` may ask questions, and writes nothing into the
user's home. This file is run by its path, and imports only the standard library, so that it starts quickly.
"""

import contextlib
import ctypes
import dataclasses
import getopt
import json
import os
import re
import resource
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PACKAGE = Path(__file__).parents[2].name
PRODUCT = PACKAGE.replace("_", "-")  # as in google/product.py, which cannot be imported here
_LOCKS = 10  # RLIMIT_LOCKS, which marks processes of TPU VMs; see processes.py
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/null")
_DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
_STREAMS = ("/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2")  # programs reopen them as /dev/stdout
_CAPABILITIES_VERSION = 0x20080522
_KEPT_CAPABILITIES = 0b11110  # root's rights to read and write other users' files, within the writable folders
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls of landlock(7), on all architectures
_WRITING = sum(1 << right for right in (1, *range(4, 15)))  # write, remove, make, move and truncate
_WRITING_FILES = 1 << 1 | 1 << 14  # the rights among these that apply to files
_TRUNCATING = 1 << 14
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_NOT_REACHED = 255
"""The exit status of ssh if it cannot connect, after which gcloud tries again."""

# The options of ssh(1) and of scp(1). A colon follows each option that has a value.
_OPTIONS = {
    "ssh": "46AaB:b:Cc:D:E:e:F:fGgI:i:J:KkL:l:Mm:NnO:o:P:p:Q:qR:S:sTtVvW:w:XxYy",
    "scp": "346ABCc:D:F:i:J:l:n:Oo:P:pqRrS:sTvX:",
}
_FORWARDING = "DLRW"
_REMOTE = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>[^@:/]+):(?P<path>.*)", re.DOTALL)
_PROJECT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
_NEW_CONFIGURATION = f"# Made by {PRODUCT}, and not changed since.\n"
"""The first line of a configuration of gcloud that is unchanged: gcloud drops comments when it sets a value."""
_EMULATED = re.compile(r"198\.1[89]\.\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Server:
    """The emulated Google Cloud that has the workers.

    Attributes:
      url: the URL of its plain HTTP port.
      token: the file with the session's token.
    """

    url: str
    token: Path

    def worker(self, address: str, user: str, command: str) -> dict[str, Any]:
        """Returns a worker's ``environment``, its ``home``, and the ``limit`` that marks its processes.

        Exits if the worker cannot be reached.
        """
        body = json.dumps({"address": address, "user": user, "command": command}).encode()
        try:
            found: dict[str, Any] = self._ask(f"/_{PACKAGE}/tpu/worker", body, {"Content-Type": "application/json"})
            return found
        except urllib.error.HTTPError as error:
            with contextlib.suppress(ValueError, KeyError):
                _end(json.load(error)["error"]["message"])
            _end(f"{address}: the emulated Google Cloud answers {error.code}")
        except (OSError, ValueError) as error:
            _end(f"{address}: the emulated Google Cloud of this session has ended ({error})")

    def meet_project(self, project: str) -> None:
        """Asks for a project, which adds it to the list of projects."""
        with contextlib.suppress(OSError, ValueError):
            self._ask(f"/v1/projects/{project}", None, {"Host": "cloudresourcemanager.googleapis.com"})

    def _ask(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        named = {"Authorization": f"Bearer {self.token.read_text()}", **headers}
        with direct.open(urllib.request.Request(self.url + path, body, named), timeout=60) as answer:
            return json.load(answer)


def read_arguments(program: str, arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Parses the arguments of ``ssh`` or ``scp``. For ``ssh``, options may follow the host, before the command.

    Returns:
      The options with their values, which may be empty, and the other arguments: the host and the command for ``ssh``,
      the files for ``scp``.

    Raises:
      getopt.GetoptError: an option does not exist.
    """
    read = getopt.getopt if program == "ssh" else getopt.gnu_getopt
    options, words = read(list(arguments), _OPTIONS[program])
    if program == "ssh" and words:
        more, command = getopt.getopt(words[1:], _OPTIONS[program])
        options, words = options + more, [words[0], *command]
    return [(name[1:], value) for name, value in options], words


def main(arguments: Sequence[str]) -> NoReturn:
    """Becomes the command on a worker, a copy, or the real program.

    Args:
      arguments: ``ssh``, ``scp`` or ``gcloud``, the folder of these programs, the server's URL, the file with its
        token, and the program's arguments.
    """
    program, own, url, token, *given = arguments
    server = Server(url, Path(token))
    if program == "gcloud":
        if next((word for word in given if not word.startswith("-")), "") == "init":
            _init(server, own, given)
        _become_real(program, own, given)
    try:
        options, words = read_arguments(program, given)
    except getopt.GetoptError:  # the real program explains it
        _become_real(program, own, given)
    if program == "ssh" and words and _is_emulated(words[0].rpartition("@")[2]):
        _log_in(server, options, words)
    if program == "scp" and any(_remote(word) for word in words):
        _copy(server, dict(options), words)
    _become_real(program, own, given)


def _init(server: Server, own: str, given: Sequence[str]) -> NoReturn:
    """Runs ``gcloud init`` as on a new machine, with an empty configuration, so that it asks the same questions.

    Every project in the piped answers is added to the list of projects, because gcloud accepts only those.
    """
    os.environ.pop("CLOUDSDK_CORE_DISABLE_PROMPTS", None)
    os.environ["HOME"] = os.path.dirname(server.token)  # gcloud writes a .boto file with the session's proxy there
    answers = None if sys.stdin.isatty() else sys.stdin.buffer.read()
    for line in (answers or b"").decode(errors="replace").splitlines():
        if _PROJECT.fullmatch(line.strip()) and not _ZONE.fullmatch(line.strip()):
            server.meet_project(line.strip())
    configuration = Path(os.environ.get("CLOUDSDK_CONFIG", ""), "configurations", "config_default")
    first = ""
    with contextlib.suppress(OSError):
        first = configuration.read_text(encoding="utf-8")
        if first.startswith(_NEW_CONFIGURATION):
            configuration.write_text("", encoding="utf-8")
    done = subprocess.run([_real("gcloud", own, given), *given], input=answers, check=False)
    with contextlib.suppress(OSError):
        if first.startswith(_NEW_CONFIGURATION) and "project" not in configuration.read_text(encoding="utf-8"):
            configuration.write_text(first, encoding="utf-8")
    sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


def write_gcloud_configuration(folder: Path, project: str) -> None:
    """Writes a new configuration of ``gcloud`` into a folder for ``CLOUDSDK_CONFIG``."""
    configurations = folder / "configurations"
    configurations.mkdir(parents=True)
    (configurations / "config_default").write_text(f"{_NEW_CONFIGURATION}[core]\nproject = {project}\n")
    (folder / "active_config").write_text("default")


def _log_in(server: Server, options: Sequence[tuple[str, str]], words: Sequence[str]) -> NoReturn:
    user, _, host = words[0].rpartition("@")
    command = " ".join(words[1:])
    if forwarded := [f"-{name} {value}" for name, value in options if name in _FORWARDING]:
        _say(f"{', '.join(forwarded)}: nothing is forwarded, as the ports of a worker are this machine's own")
    asked = host, user or dict(options).get("l") or _this_user(), command
    worker = server.worker(*asked)
    # Its processes may write to the homes of all TPU VMs, because one worker may log in to another.
    folders = [str(Path(worker["home"]).parents[2]), str(server.token.parent), worker["environment"].get(_CACHE)]
    _confine(worker["limit"], [folder for folder in folders if folder])
    # Asked again now that this process is marked, so that a TPU VM that ends in the meantime finds this process.
    worker = server.worker(*asked)
    try:
        os.chdir(worker["home"])
    except OSError as error:
        _end(f"{host}: the home of this worker is gone ({error.strerror})")
    shell = worker["environment"]["SHELL"]
    if "N" in dict(options):
        while True:
            time.sleep(3600)
    started = [shell, "-c", command] if command else [shell, "-i"] if sys.stdin.isatty() else [shell]
    os.execve(shell, started, worker["environment"])


def _confine(limit: int, folders: Sequence[str]) -> None:
    """Marks this process and its children as a worker's, and takes away rights that could change this machine.

    Setuid programs do not become root, root has no more rights than a user, and only these folders and temporary
    folders can be written to. A sandbox or an old kernel may refuse any of this; ``docs/tpu-vms.md`` describes the
    effects.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_LOCKS, (limit, limit))
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        header, rights = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, rights)
        kept = [right & _KEPT_CAPABILITIES for right in rights[:2]]
        libc.capset(header, (ctypes.c_uint32 * 6)(*kept))
        _allow_writing((*folders, os.environ.get("TMPDIR", "/tmp"), *_SHARED, *_DEVICES, *_STREAMS))


def _allow_writing(places: Sequence[str]) -> None:
    """Lets this process and its children write only to files in these places.

    Raises:
      AttributeError: this system does not have the system calls.
    """
    libc = ctypes.CDLL(None)
    syscall = libc.syscall
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    version = syscall(_CREATE_RULESET, None, 0, 1)
    if version < 2:  # the first version of Landlock does not allow moving files between folders
        return
    writing = _WRITING if version > 2 else _WRITING & ~_TRUNCATING
    ruleset = syscall(_CREATE_RULESET, struct.pack("=Q", writing), 8, 0)
    for place in places:
        with contextlib.suppress(OSError):
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
            allowed = writing if stat.S_ISDIR(os.fstat(opened).st_mode) else writing & _WRITING_FILES
            syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
    syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _copy(server: Server, options: Mapping[str, str], words: Sequence[str]) -> NoReturn:
    paths = []
    for word in words:
        found = _remote(word)
        if found is None:
            if (other := _REMOTE.fullmatch(word)) and not os.path.exists(word):
                _end(f"{other['host']} is not a worker of an emulated TPU VM, and one copy cannot be to both")
            paths.append(os.path.abspath(word) if not word.endswith("/") else os.path.abspath(word) + "/")
            continue
        home = server.worker(found["host"], found["user"] or _this_user(), "")["home"]
        path = os.path.join(home, re.sub(r"^~(?=/|$)", ".", found["path"] or "."))
        if word is words[-1]:
            own, real = (os.path.dirname(home), *_SHARED), os.path.realpath(path)
            folders = [os.path.realpath(folder) for folder in own]
            if not any(os.path.commonpath((real, folder)) == folder for folder in folders):
                _end(f"{word}: {real} is this machine's own, and not the worker's: copy to its home")
            with contextlib.suppress(OSError, AttributeError):
                _allow_writing(own)  # even if existing files in the home are links
        paths.append(path)
    program = shutil.which("cp") or "/bin/cp"
    flags = [f"-{letters}" for letters, option in (("rL", "r"), ("p", "p")) if option in options]
    os.execv(program, [program, *flags, "--", *paths])


def _remote(word: str) -> re.Match[str] | None:
    found = _REMOTE.fullmatch(word)
    return found if found and _is_emulated(found["host"]) else None


def _is_emulated(host: str) -> bool:
    return _EMULATED.fullmatch(host) is not None


def _become_real(program: str, own: str, arguments: Sequence[str]) -> NoReturn:
    real = _real(program, own, arguments)
    os.execv(real, [real, *arguments])


def _real(program: str, own: str, arguments: Sequence[str]) -> str:
    """Returns the program after the session's own on PATH; exits if there is none."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    mine = [index for index, each in enumerate(path) if os.path.realpath(each) == os.path.realpath(own)]
    # Earlier folders may be another session's, whose programs would come back here.
    later = path[mine[-1] + 1 :] if mine else path
    real = shutil.which(program, path=os.pathsep.join(later))
    if real is None:
        _end(f"{shlex.join([program, *arguments])}: there is no {program} on this machine")
    return real


def _this_user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "user"


def _say(message: str) -> None:
    print(f"{PRODUCT}: {message}", file=sys.stderr)


def _end(message: str) -> NoReturn:
    _say(message)
    sys.exit(_NOT_REACHED)


if __name__ == "__main__":
    main(sys.argv[1:])
