"""Inside an interpreter that stands by for a job: imports what the job will, and becomes the job when it gets one.

What it imports ahead is in the attribute ``libraries`` of the programs that it is given.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile

from t5x_harness.google.vertex.jobs.programs import find_programs

_TASK = f"__import__('{__name__}', fromlist=['await_task']).await_task()"
PROGRAM = f"__import__('runpy')._run_module_as_main({_TASK})"  # as python -m does
"""For ``python -c``; a descriptor and the import path of the programs follow it. It leaves no name in ``__main__``."""


def await_task() -> str:
    """Imports, waits for the task, and takes its folder, arguments and variables over.

    The task comes on the connection whose descriptor the command line names, as a line of JSON: ``words`` of
    ``python -m MODULE …`` from ``python`` on, ``environment`` and ``folder``, and as ``given`` the environment that
    this process was started with. Where nobody sends one, the process ends.

    Returns:
      The module to run.
    """
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    if not sys.flags.safe_path:
        sys.path.pop(0)  # where it waits is not where the job is to import from
    programs = find_programs(sys.argv[2])
    unimportable = not all(_imported(name) for name in programs.libraries)
    if not unimportable:
        programs.prepare()
    with orders, orders.makefile() as lines:
        line = lines.readline()
    if not line.endswith("\n"):
        os._exit(0)  # not through the interpreter's end, which takes seconds after TensorFlow
    task = json.loads(line)
    given = task["given"]
    _move_home(given["HOME"], task["environment"]["HOME"])
    os.chdir(task["folder"])
    if unimportable:  # let the job itself say why
        os.execvpe(task["words"][0], task["words"], task["environment"])
    changed = {name: value for name, value in os.environ.items() if given.get(name) != value}  # by Python or imports
    kept = {name: value for name, value in task["environment"].items() if name not in given or name in os.environ}
    os.environ.clear()
    os.environ.update(kept | changed)
    tempfile.tempdir = None  # found anew, as TMPDIR is another one
    sys.argv[:] = task["words"][1:2] + task["words"][3:]
    sys.orig_argv[1:] = task["words"][1:]
    _move_python(given["HOME"], task["environment"]["HOME"])
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    return str(task["words"][2])


def _move_home(old: str, new: str) -> None:
    """Makes what was written below HOME while importing the job's; its old path leads there, too.

    This process does it, after importing: nothing that is imported finds that there is no HOME for a moment.
    """
    os.rename(old, new)  # which is an empty folder
    os.symlink(new, old)


def _move_python(old: str, new: str) -> None:
    """Lets the interpreter know where its environment, which moves along with HOME, is from now on."""
    for name in ("executable", "prefix", "exec_prefix"):
        setattr(sys, name, getattr(sys, name).replace(old, new))
    sys.path[:] = [entry.replace(old, new) for entry in sys.path]


def _imported(name: str) -> bool:
    """Imports a library, if it is there at all; False if it cannot be imported."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return name == error.name or name.startswith(f"{error.name}.")
    except BaseException:
        return False
    return True
