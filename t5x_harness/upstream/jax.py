"""Private names of JAX for its cache, its devices and its lowering of matrix products. This does not import JAX."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from t5x_harness.system.after_import import after_import

if TYPE_CHECKING:
    from t5x_harness.slices.pod import Pod


_COMPILING_SECONDS = 20.0
"""How long a process waits for a program that another one compiles, before it compiles the program itself."""

_LOOK_SECONDS = 0.05


def write_cache_entries_atomically() -> None:
    """Makes JAX write each entry of a local cache in one step, whether or not JAX is already imported.

    JAX itself writes into a file that others may be reading, and never overwrites a file, so a half-written entry of a
    killed process would stay. Here a complete file is renamed, and replaces any other.
    """
    after_import("jax._src.lru_cache", _write_atomically)


def join_pod_when_needed(pod: Pod) -> None:
    """Makes this process join its pod when JAX is first asked for devices; JAX need not be imported yet."""
    after_import("jax._src.distributed", functools.partial(_complete, pod))
    after_import("jax._src.xla_bridge", _join_before_backends)


def compile_once() -> None:
    """Makes processes that need the same program at the same time compile it once, if JAX has a compile cache.

    The others wait, and read it from the cache. In a pod it is the first host that compiles, as only it writes entries.
    """
    after_import("jax._src.compiler", _await_others)


def share_entries_of_hosts() -> None:
    """Makes the hosts of a pod find the same entries in the compile cache; JAX hashes which devices are local."""
    after_import("jax._src.cache_key", _hash_devices_alike)


def _hash_devices_alike(cache_key: ModuleType) -> None:
    if hasattr(cache_key, "_hash_accelerator_config") and hasattr(cache_key, "_hash_devices"):
        cache_key.__dict__["_hash_accelerator_config"] = cache_key._hash_devices


def _await_others(compiler: ModuleType) -> None:
    read, compile_ = (getattr(compiler, name, None) for name in ("_cache_read", "_compile_and_write_cache"))
    if read is None or compile_ is None or hasattr(compile_, "__wrapped__"):
        return

    from t5x_harness.system.first_process import is_first  # only once programs under exec use JAX

    takes_callbacks = "host_callbacks" in inspect.signature(read).parameters  # from JAX 0.11 on

    @functools.wraps(compile_)
    def read_or_compile(backend: Any, computation: Any, devices: Any, options: Any, *rest: Any) -> Any:
        *callbacks, name, key = rest
        entry = (name, key, options, backend, devices, *(callbacks if takes_callbacks else ()))
        digest = key.rpartition("-")[2]  # such a name is short
        index = compiler.distributed.global_state.process_id
        leads = not index or all(device.process_index == index for device in devices)
        end = time.monotonic() + _COMPILING_SECONDS
        with socket.socket(socket.AF_UNIX) as sign:
            while not (is_mine := leads and is_first(sign, digest)) and time.monotonic() < end:
                time.sleep(_LOOK_SECONDS)
                if (found := read(*entry)[0]) is not None:
                    return found
            if is_mine and (found := read(*entry)[0]) is not None:
                return found  # another process has written it since it was looked up
            return compile_(backend, computation, devices, options, *rest)

    compiler.__dict__["_compile_and_write_cache"] = read_or_compile


def is_traceback_carrier(error: BaseException) -> bool:
    """Returns whether an exception only carries the traceback that JAX removed from the exception that it caused."""
    names = ("UnfilteredStackTrace", "SimplifiedTraceback", "JaxStackTraceBeforeTransformation")
    return type(error).__name__ in names


def _write_atomically(lru_cache: ModuleType) -> None:
    cache_class: Any = getattr(lru_cache, "LRUCache", None)
    suffix = getattr(lru_cache, "_CACHE_SUFFIX", None)
    put = getattr(cache_class, "put", None)
    if put is None or suffix is None or hasattr(put, "__wrapped__"):  # a JAX with another kind of cache
        return

    import secrets  # only once programs under exec use JAX

    @functools.wraps(put)
    def put_whole(self: Any, key: str, value: bytes) -> None:
        folder = str(self.path)
        if not key or self.eviction_enabled or "://" in folder:
            put(self, key, value)
            return
        unfinished = os.path.join(folder, f"{secrets.token_hex(8)}{suffix}")  # it is trimmed like an entry
        try:
            # For this user only, no matter what the umask is: programs that others can write are not run.
            with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(value)
            os.replace(unfinished, os.path.join(folder, f"{key}{suffix}"))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    cache_class.put = put_whole


def _complete(pod: Pod, distributed: ModuleType) -> None:
    """Fills in the arguments of ``jax.distributed.initialize()``, which needs none on a TPU pod."""
    original = distributed.initialize
    attendances: list[Any] = []

    @functools.wraps(original)
    def initialize(
        coordinator_address: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        import jax

        from t5x_harness.slices.pod import Attendance, waiting_for_others

        address = coordinator_address or pod.coordinator
        host, names = address.rpartition(":")[0], ("no_proxy", "NO_PROXY")
        given = [os.environ[name].split(",") for name in names if name in os.environ]
        if given and all(host in hosts for hosts in given):
            # JAX warns about a hang that proxies may cause, but no proxy is used here.
            with contextlib.suppress(AttributeError):  # a JAX without this check
                jax.config.update("jax_check_proxy_envs", False)
        while attendances:  # an earlier attendance, as this process has left the slice since
            attendances.pop().leave()
        attendances.append(attendance := Attendance(pod))  # kept, as others may still be on their way here
        with waiting_for_others(attendance, pod):
            original(
                address,
                pod.processes if num_processes is None else num_processes,
                pod.index if process_id is None else process_id,
                *args,
                **kwargs,
            )
        _end_at_errors(distributed)
        # Processes that this process starts later, such as workers that read data, are not hosts of the slice.
        for name in pod.variables():
            os.environ.pop(name, None)

    distributed.__dict__["initialize"] = initialize
    if (public := sys.modules.get("jax.distributed")) is not None:  # JAX was imported before
        public.__dict__["initialize"] = initialize


def _end_at_errors(distributed: ModuleType) -> None:
    """Makes a program that an error ends leave the pod without waiting for the others, as on a TPU.

    JAX would wait for them in a barrier for minutes, in silence, and they wait for this host in a collective.
    """
    report, leave, exit_ = sys.excepthook, distributed.State.shutdown, sys.exit
    statuses: list[Any] = [None]

    def note_and_exit(status: Any = None) -> NoReturn:
        statuses.append(status)
        exit_(status)

    def leave_or_end(state: Any) -> None:
        if statuses[-1] in (None, 0):
            leave(state)
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # replaced or closed by the program
                stream.flush()
        os._exit(statuses[-1] if isinstance(statuses[-1], int) else 1)

    def report_and_note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        report(kind, error, trace)
        statuses.append(1)

    sys.excepthook, sys.exit, distributed.State.shutdown = report_and_note, note_and_exit, leave_or_end


def _join_before_backends(bridge: ModuleType) -> None:
    """Joins the pod before backends exist: everything that needs devices calls this function of JAX first."""
    original = bridge.backends
    lock = threading.Lock()

    @functools.wraps(original)
    def backends() -> Any:
        import jax

        with lock:
            if not jax.distributed.is_initialized() and not bridge.backends_are_initialized():
                # It would handle SIGTERM, which on a TPU pod ends a program that has not asked for this service.
                jax.config.update("jax_enable_preemption_service", False)
                jax.distributed.initialize()
        return original()

    bridge.__dict__["backends"] = backends


_PLATFORM = "cpu"


class JaxLacksRules(RuntimeError):
    """The installed JAX lacks the rules to replace; the message names them."""


class Contractions(NamedTuple):
    """Numbers of contractions with float32 operands that were lowered; one in a loop counts once.

    Attributes:
      rounded: contractions at default precision.
      exact: contractions at a precision that the program requests; these are unchanged.
      of_vectors: contractions with a vector; these are also unchanged, as a TPU computes them outside the matrix unit.
    """

    rounded: int = 0
    exact: int = 0
    of_vectors: int = 0

    def since(self, before: Contractions) -> Contractions:
        """Returns the difference from earlier numbers."""
        pairs = zip(self, before, strict=True)
        return Contractions(*(now - then for now, then in pairs))


_originals: dict[Any, Callable[..., Any]] = {}
"""JAX's own rules by primitive, while they are replaced."""

_counts = Counter[str]()
"""Numbers of lowered contractions, by field of :class:`Contractions`."""


def lowered() -> Contractions:
    """Returns how many contractions this process has lowered with rounding."""
    return Contractions(**_counts)


def use_tpu_numerics(on: bool) -> None:
    """Gives matrix products on the CPU the default precision of a TPU, or undoes that.

    A TPU rounds the float32 operands of a matrix product to bfloat16, multiplies them and adds in float32, unless the
    program asks for a higher precision. Products with a vector are computed elementwise in float32. On the CPU, JAX
    ignores the precision. Here the rounding is added to each program that JAX lowers from now on, so that
    derivatives, loops and rematerialized values also have it. Compiled programs are dropped from JAX's caches.

    Args:
      on: whether programs are to round.

    Raises:
      JaxLacksRules: the installed JAX keeps its rules elsewhere; nothing was changed.
    """
    if on == bool(_originals):
        return
    import jax
    from jax.interpreters import mlir

    if on:
        lowerings = {jax.lax.dot_general_p: _lower_dot, jax.lax.conv_general_dilated_p: _lower_convolution}
        rules = {primitive: _rule(mlir, primitive) for primitive in lowerings}
        for primitive, rule in rules.items():
            lowering = functools.partial(lowerings[primitive], rule)
            mlir.register_lowering(primitive, lowering, platform=_PLATFORM)
        _originals.update(rules)
    else:
        for primitive, rule in _originals.items():
            mlir.register_lowering(primitive, rule, platform=_PLATFORM)
        _originals.clear()
    jax.clear_caches()


def _rule(mlir: Any, primitive: Any) -> Callable[..., Any]:
    """Returns JAX's rule for lowering a primitive for the CPU."""
    try:
        rule: Callable[..., Any] = mlir._platform_specific_lowerings[_PLATFORM][primitive].rule
    except (AttributeError, KeyError):
        import jax

        raise JaxLacksRules(
            f"--tpu-numerics: JAX {jax.__version__} has no rule for {primitive} where JAX 0.10.2 has it"
        ) from None
    return rule


def _lower_dot(rule: Callable[..., Any], context: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Lowers a dot by JAX's own rule, with rounding unless an operand is a vector."""
    left, right = (aval.shape for aval in context.avals_in)
    (left_summed, right_summed), (left_batch, right_batch) = params["dimension_numbers"]
    sides = ((left, {*left_summed, *left_batch}), (right, {*right_summed, *right_batch}))
    free = [[size for axis, size in enumerate(shape) if axis not in used] for shape, used in sides]
    # An operand has a single row or column, or only one product is summed.
    if any(all(size == 1 for size in sizes) for sizes in (*free, [left[axis] for axis in left_summed])):
        _counts["of_vectors"] += _has_float32(context)
    else:
        lhs, rhs = _rounded(context, (lhs, rhs), params["precision"])
    return rule(context, lhs, rhs, **params)


def _lower_convolution(rule: Callable[..., Any], context: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Lowers a convolution by JAX's own rule, with rounding, as a TPU computes all of them in the matrix unit."""
    return rule(context, *_rounded(context, (lhs, rhs), params["precision"]), **params)


def _has_float32(context: Any) -> bool:
    return any(aval.dtype == "float32" for aval in context.avals_in)


def _rounded(context: Any, operands: Sequence[Any], precision: Any) -> Sequence[Any]:
    """Rounds the float32 operands if a TPU rounds them to bfloat16 at this precision, without corrections.

    Args:
      context: JAX's context of the contraction.
      operands: the operands as they are lowered.
      precision: the contraction's precision in JAX: None, one for each operand, or an algorithm for both.
    """
    from jax.extend.mlir.dialects import stablehlo
    from jax.lax import DotAlgorithmPreset, Precision

    if not _has_float32(context):
        return operands
    of_both = (DotAlgorithmPreset.DEFAULT, DotAlgorithmPreset.BF16_BF16_F32)
    of_each = precision if isinstance(precision, tuple) else (precision,)
    if precision not in of_both and any(each not in (None, Precision.DEFAULT) for each in of_each):
        _counts["exact"] += 1
        return operands
    _counts["rounded"] += 1
    # XLA would remove a conversion to bfloat16 and back.
    return [
        stablehlo.reduce_precision(operand, exponent_bits=8, mantissa_bits=7) if aval.dtype == "float32" else operand
        for operand, aval in zip(operands, context.avals_in, strict=True)
    ]
