"""Replaces programs on a worker that would change this machine.

On a TPU VM, a user may become root. Here that would be this machine's root, so ``sudo`` runs its command without more
rights, and programs that install, configure or shut down a machine only say that they do nothing. Programs that end
processes by name end only processes of the worker. Like ``remote_shell``, this file is run by its path, and imports
only the standard library.
"""

import contextlib
import getopt
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

PRODUCT = Path(__file__).parents[2].name.replace("_", "-")  # the same as in product.py, which cannot be imported here
_REFUSED, _NOT_FOUND, _APT_ERROR = 1, 127, 100

_PIPS = ("pip", "pip3")
_PACKAGES = ("apt", "apt-get", "aptitude")
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("dpkg", "snap", "yum", "dnf", "apk", "pacman", "add-apt-repository", "apt-key"),
            "it would install into this machine",
        ),
        **dict.fromkeys(
            ("systemctl", "service", "initctl", "systemd-run", "crontab", "at", "batch"),
            "what it starts would belong to this machine, and not end with the TPU VM",
        ),
        **dict.fromkeys(("reboot", "shutdown", "poweroff", "halt", "init", "telinit"), "it would end this machine"),
        **dict.fromkeys(
            ("docker", "podman", "nerdctl"), "containers would belong to this machine, and not end with the TPU VM"
        ),
        **dict.fromkeys(
            (
                *("mount", "umount", "losetup", "mkfs", "fdisk", "modprobe", "sysctl", "ldconfig", "dpkg-reconfigure"),
                *("hostnamectl", "timedatectl", "localectl", "loginctl"),
            ),
            "it would change this machine",
        ),
        **dict.fromkeys(
            ("useradd", "usermod", "userdel", "adduser", "groupadd", "passwd", "visudo"), "users are this machine's"
        ),
    }
)
_BECOMING = ("sudo", "su", "doas", "pkexec")
_KILLING = ("pkill", "killall")
NAMES = (*_BECOMING, *_PACKAGES, "update-alternatives", *_REASONS, *_KILLING, "git", *_PIPS)
"""The names of the programs that are replaced."""

_SUDO_OPTIONS = "ABbC:D:Eeg:HhiKklnPp:R:r:ST:t:U:u:Vvs"
_SUDO_LONG = [
    *("user=", "group=", "chdir=", "prompt=", "host=", "close-from=", "command-timeout=", "preserve-env=", "login"),
    *("shell", "set-home", "non-interactive", "stdin", "background", "validate", "list", "reset-timestamp"),
]
_ASKS = ("-K", "-k", "-V", "-v", "-l", "-h", "--validate", "--list", "--reset-timestamp")
_SIGNAL = re.compile(r"-(?:-signal=)?(?:SIG)?(?P<signal>[A-Z]{3,}[0-9]*|[0-9]+)")
_KILLALL = "eIqru:v", ["exact", "ignore-case", "quiet", "regexp", "user=", "verbose"]
_LONGEST_NAME = 15  # Linux truncates the names of processes
_APT_INSTALLS = ("install", "reinstall")
_GIT_REMOTE = ("clone", "fetch", "pull", "push", "ls-remote", "submodule")


def main(path: str, arguments: Sequence[str]) -> NoReturn:
    """Runs the replacement of a program.

    Args:
      path: the path of the program that was called, in the folder of the replacements.
      arguments: the program's arguments.
    """
    own, name = os.path.split(path)
    if name == "sudo":
        _sudo(own, arguments)
    if name in _BECOMING:
        _end(f"{name}: a worker has no other users, and its root would be this machine's", _REFUSED)
    if name in _PACKAGES:
        _apt(name, arguments)
    if name == "update-alternatives":
        _alternatives(arguments)
    if name in _KILLING:
        _kill_by_name(name, own, arguments)
    if name == "git":
        _git(own, arguments)
    if name in _PIPS:
        _pip(name, own, arguments)
    _end(f"{name} does nothing on an emulated worker: {_REASONS.get(name, 'it would change this machine')}", _REFUSED)


def _sudo(own: str, arguments: Sequence[str]) -> NoReturn:
    """Runs the command as the user who is logged in."""
    plain = ["-E" if word == "--preserve-env" else word for word in arguments]  # its value is optional
    try:
        options, words = getopt.getopt(plain, _SUDO_OPTIONS, _SUDO_LONG)
    except getopt.GetoptError as error:
        _end(f"sudo: {error}", _REFUSED)
    given = dict(options)
    user = given.get("-u") or given.get("--user") or "root"
    if user not in ("root", "#0", os.environ.get("USER"), f"#{os.geteuid()}"):
        _end(f"sudo: an emulated worker has no user {user}", _REFUSED)
    if folder := given.get("-D") or given.get("--chdir"):
        try:
            os.chdir(folder)
        except OSError as error:
            _end(f"sudo: {folder}: {error.strerror}", _REFUSED)
    while words and "=" in words[0].partition("/")[0]:
        variable, _, value = words.pop(0).partition("=")
        os.environ[variable] = value
    if not words:
        if any(option in given for option in _ASKS):
            sys.exit(0)
        words = [os.environ.get("SHELL", "/bin/sh")]
    elif {"-i", "-s", "--login", "--shell"} & set(given):
        words = [os.environ.get("SHELL", "/bin/sh"), "-c", " ".join(words)]
    if {"-b", "--background"} & set(given) and os.fork():
        sys.exit(0)
    name = os.path.basename(words[0])
    standing = os.path.join(own, name)
    if name in NAMES:
        _become(standing, words)
    _say(
        f"sudo has no more rights on an emulated worker: {name} runs as {os.environ.get('USER', 'you')}, and writes to "
        "the worker's home and /tmp alone"
    )
    _become(words[0], words)


def _apt(name: str, arguments: Sequence[str]) -> NoReturn:
    """Reports which packages this machine has, and installs none."""
    verb, *packages = [word for word in arguments if not word.startswith("-")] or [""]
    missing = [package for package in packages if not _is_installed(package)] if verb in _APT_INSTALLS else []
    if missing:
        words = shlex.join([name, "install", *missing])
        _end(
            f"{name} installs nothing on an emulated worker, and this machine lacks {', '.join(missing)}: go on "
            f"without, or run sudo {words} in a shell of your own",
            _APT_ERROR,
        )
    here = f"; this machine has {', '.join(packages)}" if packages and verb in _APT_INSTALLS else ""
    changes = verb in ("remove", "purge", "autoremove")
    _end(f"{shlex.join([name, verb]).rstrip()} does nothing on an emulated worker{here}", _APT_ERROR if changes else 0)


def _is_installed(package: str) -> bool:
    package = package.partition("=")[0].partition("/")[0]
    if shutil.which(package):
        return True
    query = shutil.which("dpkg-query")
    if query is None:
        return False
    words = [query, "--show", "--showformat=${db:Status-Status}", "--", package]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "installed"


def _alternatives(arguments: Sequence[str]) -> NoReturn:
    """Reports the program that already exists under the name to set."""
    words = list(arguments)
    name = ""
    for option, place in (("--install", 2), ("--set", 1), ("--config", 1), ("--auto", 1)):
        if option in words[:-place]:
            name = words[words.index(option) + place]
    found = shutil.which(name) if name else None
    if found is None:
        _end("update-alternatives does nothing on an emulated worker: it would change this machine", _REFUSED)
    _end(f"update-alternatives does nothing on an emulated worker: its {name} is {found}", 0)


def _kill_by_name(name: str, own: str, arguments: Sequence[str]) -> NoReturn:
    """Sends a signal to processes of this worker only, and not to other processes with the same names."""
    number, words, left = signal.SIGTERM.value, [], list(arguments)
    while left:
        word = left.pop(0)
        if left and (word == "--signal" or (word == "-s" and name == "killall")):
            word = f"-{left.pop(0)}"
        if found := _SIGNAL.fullmatch(word):
            number = _signal_of(name, found["signal"])
        elif word not in ("-e", "--echo", "-c", "--count") or name == "killall":
            words.append(word)
    words = _pgrep_arguments(words) if name == "killall" else words
    done = subprocess.run([_real("pgrep", own), *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.returncode)
    pids = [int(line) for line in done.stdout.split() if line.isdecimal() and int(line) != os.getpid()]
    mine = [pid for pid in pids if _is_of_this_worker(pid)]
    for pid in mine:
        with contextlib.suppress(OSError):  # it has ended
            os.kill(pid, number)
    if others := len(pids) - len(mine):
        _say(f"{name} ends processes of this worker alone: {others} more on this machine have such a name")
    elif not mine and name == "killall":
        print(f"{shlex.join(arguments)}: no process found", file=sys.stderr)
    sys.exit(0 if mine else 1)


def _signal_of(program: str, text: str) -> int:
    try:
        return int(text) if text.isdecimal() else signal.Signals[f"SIG{text}"].value
    except KeyError:
        _end(f"{program}: {text}: there is no such signal", _REFUSED)


def _pgrep_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with which ``pgrep`` finds the processes that ``killall`` would end."""
    try:
        options, names = getopt.getopt(list(arguments), *_KILLALL)
    except getopt.GetoptError as error:
        _end(f"killall: {error}, or not emulated", _REFUSED)
    given = dict(options)
    if not names:
        names = [".*"] if {"-u", "--user"} & set(given) else _end("killall: which processes?", _REFUSED)
    elif not {"-r", "--regexp"} & set(given):
        names = [re.escape(os.path.basename(name)[:_LONGEST_NAME]) for name in names]
    return [*(["-i"] if {"-I", "--ignore-case"} & set(given) else []), "-x", "--", "|".join(names)]


def _is_of_this_worker(pid: int) -> bool:
    own = f"HOSTNAME={os.environ.get('HOSTNAME')}".encode()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return own in file.read().split(b"\0")
    return False


def _git(own: str, arguments: Sequence[str]) -> NoReturn:
    """Runs the real git; if a command that needs a network fails, prints what to do instead."""
    verb = next((word for word in arguments if word in _GIT_REMOTE), "")
    real = _real("git", own)
    if not verb:
        os.execv(real, [real, *arguments])
    status = subprocess.call([real, *arguments])
    if status:
        _say(
            f"git {verb} ended with {status}: an emulated worker reaches no network. Copy a folder to all workers "
            "instead: gcloud compute tpus tpu-vm scp --recurse FOLDER NAME: --worker=all"
        )
    sys.exit(status if status >= 0 else 128 - status)


def _pip(name: str, own: str, arguments: Sequence[str]) -> NoReturn:
    """Runs the worker's pip; if an installation fails, prints that pip uses no index, and what to do instead."""
    status = subprocess.call([_real(name, own), *arguments])
    if status and "install" in arguments:
        _say(
            f"{name} ended with {status}: on an emulated worker it asks no index. What the environment has that "
            f"{PRODUCT} runs in is there already: go on without the rest, or run {sys.executable} -m pip install … "
            "in a shell of your own"
        )
    sys.exit(status if status >= 0 else 128 - status)


def _real(name: str, own: str) -> str:
    folders = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if os.path.realpath(folder) != os.path.realpath(own)
    ]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        print(f"{name}: command not found", file=sys.stderr)
        sys.exit(_NOT_FOUND)
    return found


def _become(program: str, words: Sequence[str]) -> NoReturn:
    try:
        os.execvp(program, list(words))
    except OSError as error:
        _end(f"{words[0]}: {error.strerror or error}", _NOT_FOUND)


def _say(text: str) -> None:
    print(f"{PRODUCT}: {text}", file=sys.stderr, flush=True)


def _end(text: str, status: int) -> NoReturn:
    _say(text)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
