"""Objects for the tests to hold in runs; imported by the runs, not by the tests."""

import ctypes
import importlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class Calculator:
    """Does anything that a test asks for, good or bad."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        self.argument = dict(argument)
        self.progress = progress

    # The purpose of a run.

    def echo(self, value: Any = None) -> Any:
        return value

    def given(self) -> dict[str, Any]:
        return self.argument

    def count(self, to: int) -> int:
        for step in range(1, to + 1):
            self.progress({"stage": "count", "step": step, "of": to})
        return to

    def blob(self, size: int) -> str:
        return "x" * size

    def write(self, text: str) -> None:
        print("python", text)
        print("error", text, file=sys.stderr)
        os.write(1, f"descriptor {text}\n".encode())
        ctypes.CDLL(None).printf(f"native {text}\n".encode())

    def write_lines(self, count: int) -> None:
        for number in range(count):
            print(f"line {number} " + "-" * 80)

    # The properties of its process.

    def look_up(self, name: str) -> Any:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)

    def surroundings(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "session": os.getsid(0),
            "group": os.getpgrp(),
            "cwd": os.getcwd(),
            "env": dict(os.environ),
            "path": list(sys.path),
            "stdin": os.readlink("/proc/self/fd/0"),
        }

    def descriptors(self) -> dict[str, str]:
        found = {}
        for name in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{name}") or os.path.islink(f"/proc/self/fd/{name}"):
                target = os.readlink(f"/proc/self/fd/{name}")
                if not target.endswith(f"/{os.getpid()}/fd"):
                    found[name] = target
        return found

    def signals(self) -> dict[str, Any]:
        handlers = {s: signal.getsignal(s) for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}}
        return {
            "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "handled": sorted(s for s, h in handlers.items() if callable(h) and h is not signal.default_int_handler),
        }

    # Things that go wrong.

    def page_faults_of_calls(self, calls: int, depths: int) -> list[int]:
        """Returns the pages that the kernel had to provide for so many calls, from each depth of the stack."""

        def nothing() -> None:
            pass

        nothing.__code__ = nothing.__code__.replace(co_stacksize=200)  # ten times as much as a step deeper

        def faults(depth: int) -> int:
            if depth:
                return faults(depth - 1)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(calls):
                nothing()
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        return [faults(depth) for depth in range(depths)]

    def fail(self, message: str) -> None:
        raise ValueError(message)

    def fail_unprintably(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise Odd

    def leave(self, status: int) -> None:
        sys.exit(status)

    def exit(self, status: int) -> None:
        print("about to exit")
        os._exit(status)

    def abort(self) -> None:
        os.abort()

    def segfault(self) -> None:
        ctypes.string_at(0)

    def signal(self, number: int) -> None:
        print("about to be signalled")
        os.kill(os.getpid(), number)
        time.sleep(600)

    def die_on_the_way(self) -> None:
        """Sends two events, the second one right before it is killed."""
        self.progress({"step": 1})
        time.sleep(0.3)
        self.progress({"step": 2})
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        print("about to hang")
        self.progress({"stage": "train", "step": 3, "of": 8})
        self.wait_for_ever()

    def wait_for_ever(self) -> None:
        threading.Event().wait()

    def hang_natively(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        ctypes.CDLL(None).sleep(600)

    def flood(self) -> None:
        while True:
            self.progress({"stage": "flood"})

    def close_descriptors(self) -> None:
        os.closerange(3, 100)
        time.sleep(600)

    def write_into_descriptors(self) -> None:
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
                os.write(int(name), b"\x00\x00\x00\x02no")
        time.sleep(600)

    def unserialisable(self) -> Any:
        return {"loss": [1.0, {1, 2}]}

    # Processes that it may leave behind.

    def start_child(self) -> int:
        return subprocess.Popen(SLEEP).pid

    def start_stubborn_child(self) -> int:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    def start_daemon(self) -> int:
        """Forks twice with a new session in between, as daemons do."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        os.wait()
        return int(os.read(reader, 20))

    def start_fork(self) -> int:
        """Forks without exec, so that the fork holds every descriptor of the run."""
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        return pid

    def write_later(self, path: str) -> None:
        def write() -> None:
            time.sleep(0.2)
            with open(path, "w") as file:
                file.write("written")

        threading.Thread(target=write).start()


def slow(argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> Calculator:
    progress({"stage": "prepare"})
    time.sleep(argument["seconds"])
    return Calculator(argument, progress)


def broken(argument: Mapping[str, Any], _progress: Callable[[Mapping[str, Any]], None]) -> Calculator:
    raise LookupError(f"no such thing as {argument['thing']}")
