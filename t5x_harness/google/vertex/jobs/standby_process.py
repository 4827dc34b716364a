"""The code of a standby interpreter: imports what the job will import, and becomes the job when the job arrives.

The libraries to import are in the attribute ``libraries`` of the programs that it is given.
"""

import importlib
import json
import os
import socket
import sys
import tempfile

from t5x_harness.google.vertex.jobs.programs import find_programs

_TASK = f"__import__('{__name__}', fromlist=['await_task']).await_task()"
PROGRAM = f"__import__('runpy')._run_module_as_main({_TASK})"  # as python -m does
"""The code for ``python -c``; the arguments are a descriptor and the import path of the programs. It leaves no name in
``__main__``."""


def await_task() -> str:
    """Imports, waits for the task, and adopts its folder, arguments and variables.

    The task is a line of JSON on the connection whose descriptor the command line names. It has ``words`` (those of
    ``python -m MODULE …``, starting with ``python``), ``environment``, ``folder``, and ``given``, the environment with
    which this process was started. If the connection ends without a task, so does the process.

    Returns:
      The module to run.
    """
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the job does not import from the folder in which this process waits
    programs = find_programs(sys.argv[2])
    unimportable = not all(_imported(name) for name in programs.libraries)
    with orders, orders.makefile() as lines:
        line = lines.readline()
    if not line.endswith("\n"):
        os._exit(0)  # a regular exit takes seconds after TensorFlow was imported
    task = json.loads(line)
    given = task["given"]
    old, new = given["HOME"], task["environment"]["HOME"]
    # The files that imports have written below HOME move to the job, and the old path becomes a link to them. This
    # process does it after importing, so that HOME exists during every import.
    os.rename(old, new)  # the new one is an empty folder
    os.symlink(new, old)
    os.chdir(task["folder"])
    if unimportable:  # the job itself shows why
        os.execvpe(task["words"][0], task["words"], task["environment"])
    changed = {name: value for name, value in os.environ.items() if given.get(name) != value}  # by Python or by imports
    kept = {name: value for name, value in task["environment"].items() if name not in given or name in os.environ}
    os.environ.clear()
    os.environ.update(kept | changed)
    tempfile.tempdir = None  # determined again at the next use, because TMPDIR has changed
    sys.argv[:] = task["words"][1:2] + task["words"][3:]
    sys.orig_argv[1:] = task["words"][1:]
    # The interpreter's environment has moved with HOME.
    for name in ("executable", "prefix", "exec_prefix"):
        setattr(sys, name, getattr(sys, name).replace(old, new))
    sys.path[:] = [entry.replace(old, new) for entry in sys.path]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    return str(task["words"][2])


def _imported(name: str) -> bool:
    """Imports a library; returns False if it is installed but cannot be imported."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return name == error.name or name.startswith(f"{error.name}.")
    except BaseException:
        return False
    return True
