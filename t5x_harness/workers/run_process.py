"""The child's side of a run, which becomes a separate process, makes the object, and answers calls until the end."""

import contextlib
import enum
import faulthandler
import gc
import importlib
import operator
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.system import network, processes
from t5x_harness.upstream.cpython import run_exit_functions
from t5x_harness.upstream.jax import write_cache_entries_atomically
from t5x_harness.variables import MODE_VARIABLE, ROOT_VARIABLE
from t5x_harness.workers import framing

# How many objects a run makes between two garbage collections. Tracing makes millions that survive, and with Python's
# default of 700 they would be traversed again and again.
COLLECTED_AFTER = 50_000

# The texts that JAX reads as booleans.
_TRUTH = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}


def run(link: socket.socket, *, log: int, guard: int, imported: Mapping[str, str], path: Sequence[str] | None) -> None:
    """Serves one run, in a process just forked. Never returns.

    Args:
      link: the connection to the parent; the only descriptor above 2 that the run may keep.
      log: the descriptor that replaces stdout and stderr.
      guard: the pid of the process that forked this one, which this one must not outlive.
      imported: the environment variables that the preloaded modules set while they were imported.
      path: the folders of the session's ``PYTHONPATH``, if they may differ from the zygote's.
    """
    status = 1
    try:
        _detach(log, guard)
        status = _serve(framing.Channel(link), imported, path)
    except (EOFError, ConnectionError):
        pass  # the parent is gone, and nobody is left to report to
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)


def _detach(log: int, guard: int) -> None:
    processes.reset_signals()
    os.setsid()
    processes.die_with_parent(guard)
    processes.name_process("t5x-run")
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.close(nothing)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        # Printed text must be in the log when the process dies, and odd text must not make printing fail.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable(file=2)
    faulthandler.register(processes.STACK_SIGNAL, file=2, all_threads=True)
    gc.set_threshold(COLLECTED_AFTER)
    gc.enable()


def _serve(channel: framing.Channel, imported: Mapping[str, str], path: Sequence[str] | None) -> int:
    start = channel.receive()
    target: Any = None
    failure: dict[str, Any] | None = None
    try:
        _enter(start, imported, path)
        target = load_factory(start["factory"])(start["argument"], lambda event: channel.send({"progress": event}))
    except BaseException as error:
        failure = describe(error, start["factory"])
    while True:
        request = channel.receive()
        if "end" in request:
            # As at the end of a program, other threads finish their writes. The interpreter is not torn down,
            # because native libraries that were loaded before the fork may not survive that.
            run_exit_functions()
            return 0
        reply = failure or _call(target, request["method"], request["kwargs"])
        _flush()
        reply["id"] = request["call"]
        channel.send(reply)


def _call(target: Any, method: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = getattr(target, method)(**kwargs)
        return check_reply(value, method)
    except BaseException as error:
        return describe(error, method)


def check_reply(value: Any, method: str) -> dict[str, Any]:
    """Wraps a method's result, or describes why it cannot be sent."""
    try:
        framing.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        found = framing.not_json(value, f"{method}()") or str(error)
        returned = type(value).__qualname__
        return {
            "raised": method,
            "type": "TypeError",
            "message": f"{method}() returned a {returned} that JSON cannot carry: {found}",
            "traceback": "",
        }
    return {"value": value}


def _enter(start: Mapping[str, Any], imported: Mapping[str, str], path: Sequence[str] | None) -> None:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**imported, **start["env"]})
    time.tzset()
    tempfile.tempdir = None  # so that TMPDIR is read again
    os.chdir("/")  # the folder that a kept worker started in may be gone
    _confine()
    os.chdir(start["cwd"])
    if path is not None:
        # The session's Python variables, which an interpreter reads only when it starts.
        sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        gone = {os.path.abspath(entry) for entry in before.get("PYTHONPATH", "").split(os.pathsep) if entry}
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in gone)]
    sys.path[:0] = start["python_path"]
    sys.argv = ["t5x-run"]
    importlib.invalidate_caches()
    apply_jax_environment(before, os.environ)
    write_cache_entries_atomically()
    # Python reseeds its own generator in every fork, but not numpy's global one.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _confine() -> None:
    """Sets up ``/gcs`` and the network according to the environment.

    This has to happen now, while this fork has a single thread: the kernel moves only the calling thread into a
    namespace, and applies filters only to it.
    """
    from t5x_harness.google.gcs_mount.mount import MountMode, enter

    if root := os.environ.get(ROOT_VARIABLE):
        enter(root, os.environ.get(MODE_VARIABLE) or MountMode.FOLDER)
    if network.network_is_forbidden(os.environ):
        network.confine()


def apply_jax_environment(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Sets JAX's options to the values that they would have if JAX had been imported in another environment.

    JAX reads ``JAX_*`` variables at its import. If JAX is not imported yet, this does nothing, because JAX will read
    the environment itself.

    Args:
      before: the environment that JAX was imported in.
      after: the environment that counts.

    Raises:
      RuntimeError: a variable that JAX read is gone, and the option's default is unknown.
      ValueError: a variable's text does not fit the option's type.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return
    options: Mapping[str, Any] = jax.config.values
    for name in sorted(n for n in before.keys() | after.keys() if n.startswith("JAX_")):
        option = name.lower()
        if option not in options or before.get(name) == after.get(name):
            continue
        if name not in after:
            raise RuntimeError(
                f"{name} cannot be unset for this run: JAX read it ({before[name]!r}) when the worker process imported "
                "it. Unset it before the session starts."
            )
        jax.config.update(option, _jax_option(name, after[name], options[option]))


def _jax_option(name: str, text: str, current: Any) -> Any:
    try:
        if isinstance(current, bool):
            return _TRUTH[text.lower()]
        if isinstance(current, enum.Enum):
            return type(current)[text]
        if isinstance(current, int | float):
            return type(current)(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name}={text!r}: JAX expects {type(current).__name__} here") from None
    return text


def load_factory(name: str) -> Callable[[Mapping[str, Any], Callable[[Mapping[str, Any]], None]], Any]:
    """Imports ``package.module:callable``."""
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))  # type: ignore[no-any-return]


def describe(error: BaseException, where: str) -> dict[str, Any]:
    """Returns an exception as a reply."""
    return {
        "raised": where,
        "type": type_name(error),
        "traceback": user_traceback(error, __file__),
        **({"message": _text(error)} if isinstance(error, Exception) else _end_and_place(error)),
    }


def _end_and_place(error: BaseException) -> dict[str, Any]:
    """Describes the exception that ended a program, and its line: the exception has a number or no text."""
    done = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {type_name(error)}"
    frames = [
        (frame.f_globals.get("__name__"), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    # The last frame is that of the line itself, or of exit() or quit().
    module, file, line = next((frame for frame in reversed(frames) if frame[0] != "_sitebuiltins"), ("", "", 0))
    return {"message": f"module {module} {done}", "at": [file, line]}


def user_traceback(error: BaseException, own_file: str) -> str:
    """Formats the traceback without its first frames if they are from ``own_file`` or the import machinery."""
    frames = error.__traceback__
    while frames:
        file = frames.tb_frame.f_code.co_filename
        if file not in (own_file, importlib.__file__) and not file.startswith("<frozen importlib"):
            break
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def type_name(error: BaseException) -> str:
    """Returns the name of the exception's type as it appears in a traceback."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"(its text is not available: {type_name(second)})"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # replaced or closed by the user's code
            stream.flush()
    processes.flush_c_streams()
