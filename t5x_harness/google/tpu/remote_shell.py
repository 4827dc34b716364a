"""``ssh`` and ``scp`` in front of PATH: to a worker of an emulated TPU VM they are processes here, else the real ones.

gcloud calls them. It is run by its path, and imports nothing but the standard library, so that it starts at once.
``gcloud`` is always the real one; but ``gcloud init`` may ask, and writes nothing into the user's home.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getopt
import json
import os
import re
import shlex
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

_NOT_REACHED = 255
"""As ssh ends where it cannot connect, which gcloud tries again."""

# The options of ssh(1) and of scp(1); those with a colon have a value.
_OPTIONS = {
    "ssh": "46AaB:b:Cc:D:E:e:F:fGgI:i:J:KkL:l:Mm:NnO:o:P:p:Q:qR:S:sTtVvW:w:XxYy",
    "scp": "346ABCc:D:F:i:J:l:n:Oo:P:pqRrS:sTvX:",
}
_FORWARDING = "DLRW"
_REMOTE = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>[^@:/]+):(?P<path>.*)", re.DOTALL)
_EMULATED = re.compile(r"198\.1[89]\.\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Server:
    """The emulated Google Cloud that knows the workers.

    Attributes:
      url: of plain HTTP.
      token: the file with the session's token.
    """

    url: str
    token: Path

    def worker(self, address: str, user: str, command: str) -> dict[str, Any]:
        """Returns a worker's ``environment`` and ``home``; ends this process where it cannot be reached."""
        body = json.dumps({"address": address, "user": user, "command": command}).encode()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            headers = {"Authorization": f"Bearer {self.token.read_text()}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{self.url}/_t5x_harness/tpu/worker", body, headers)
            with direct.open(request, timeout=60) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with contextlib.suppress(ValueError, KeyError):
                _end(json.load(error)["error"]["message"])
            _end(f"{address}: the emulated Google Cloud answers {error.code}")
        except (OSError, ValueError) as error:
            _end(f"{address}: the emulated Google Cloud of this session has ended ({error})")


@dataclasses.dataclass
class Arguments:
    """What an ``ssh`` or ``scp`` was called with.

    Attributes:
      options: with their values, if they have some.
      words: what is left: of ``ssh`` the host and the command, of ``scp`` the files.
    """

    options: list[tuple[str, str]]
    words: list[str]

    @classmethod
    def read(cls, program: str, arguments: Sequence[str]) -> Arguments:
        """Reads them. Of ``ssh``, options may follow the host; what is behind them is the command.

        Raises:
          getopt.GetoptError: there is no such option.
        """
        read = getopt.getopt if program == "ssh" else getopt.gnu_getopt
        options, words = read(list(arguments), _OPTIONS[program])
        if program == "ssh" and words:
            more, command = getopt.getopt(words[1:], _OPTIONS[program])
            options, words = options + more, [words[0], *command]
        return cls([(name[1:], value) for name, value in options], words)

    def value(self, option: str) -> str:
        """Returns the last value that an option has; empty for none."""
        return dict(self.options).get(option, "")

    def has(self, option: str) -> bool:
        return option in dict(self.options)


def main(arguments: Sequence[str]) -> NoReturn:
    """Becomes the command on a worker, the copy, or the real program.

    Args:
      arguments: ``ssh``, ``scp`` or ``gcloud``, the folder that has them, the server's address, the file with its
        token, and the program's arguments.
    """
    program, own, url, token, *given = arguments
    if program == "gcloud":
        if next((word for word in given if not word.startswith("-")), "") == "init":
            os.environ.pop("CLOUDSDK_CORE_DISABLE_PROMPTS", None)
            os.environ["HOME"] = os.path.dirname(token)  # it writes a .boto with the session's proxy there
        _become_the_real(program, own, given)
    try:
        server, parsed = Server(url, Path(token)), Arguments.read(program, given)
    except getopt.GetoptError:  # which the real program explains
        _become_the_real(program, own, given)
    if program == "ssh" and parsed.words and _is_emulated(parsed.words[0].rpartition("@")[2]):
        _log_in(server, parsed)
    if program == "scp" and any(_remote(word) for word in parsed.words):
        _copy(server, parsed)
    _become_the_real(program, own, given)


def _log_in(server: Server, parsed: Arguments) -> NoReturn:
    user, _, host = parsed.words[0].rpartition("@")
    command = " ".join(parsed.words[1:])
    if forwarded := [f"-{name} {value}" for name, value in parsed.options if name in _FORWARDING]:
        _say(f"{', '.join(forwarded)}: nothing is forwarded, as the ports of a worker are this machine's own")
    worker = server.worker(host, user or parsed.value("l") or _this_user(), command)
    os.chdir(worker["home"])
    shell = worker["environment"]["SHELL"]
    if parsed.has("N"):
        while True:
            time.sleep(3600)
    words = [shell, "-c", command] if command else [shell, "-i"] if sys.stdin.isatty() else [shell]
    os.execve(shell, words, worker["environment"])


def _copy(server: Server, parsed: Arguments) -> NoReturn:
    paths = []
    for word in parsed.words:
        found = _remote(word)
        if found is None:
            if (other := _REMOTE.fullmatch(word)) and not os.path.exists(word):
                _end(f"{other['host']} is not a worker of an emulated TPU VM, and one copy cannot be to both")
            paths.append(os.path.abspath(word) if not word.endswith("/") else os.path.abspath(word) + "/")
            continue
        home = server.worker(found["host"], found["user"] or _this_user(), "")["home"]
        path = found["path"] or "."
        path = re.sub(r"^~(?=/|$)", ".", path)
        paths.append(os.path.join(home, path))
    program = shutil.which("cp") or "/bin/cp"
    flags = [f"-{letter}" for letter in "rp" if parsed.has(letter)]
    os.execv(program, [program, *flags, "--", *paths])


def _remote(word: str) -> re.Match[str] | None:
    found = _REMOTE.fullmatch(word)
    return found if found and _is_emulated(found["host"]) else None


def _is_emulated(host: str) -> bool:
    return _EMULATED.fullmatch(host) is not None


def _become_the_real(program: str, own: str, arguments: Sequence[str]) -> NoReturn:
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    mine = [index for index, each in enumerate(path) if os.path.realpath(each) == os.path.realpath(own)]
    # What is in front may be another session's, which would come back here.
    behind = path[mine[-1] + 1 :] if mine else path
    real = shutil.which(program, path=os.pathsep.join(behind))
    if real is None:
        _end(f"{shlex.join([program, *arguments])}: there is no {program} on this machine")
    os.execv(real, [real, *arguments])


def _this_user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "user"


def _say(message: str) -> None:
    print(f"t5x-harness: {message}", file=sys.stderr)


def _end(message: str) -> NoReturn:
    _say(message)
    sys.exit(_NOT_REACHED)


if __name__ == "__main__":
    main(sys.argv[1:])
