"""Private names of JAX: how it writes its cache, and where it creates devices. Does not import JAX."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from t5x_harness.system.after_import import after_import

if TYPE_CHECKING:
    from t5x_harness.slices.pod import Pod


def write_cache_entries_atomically() -> None:
    """Has JAX write each entry of a local cache in one step, whether or not JAX is imported already.

    JAX itself writes into a file that others may be reading, and never overwrites a file, so an entry that a killed
    process has written by half would stay. Here a complete file is renamed, and replaces any other.
    """
    after_import("jax._src.lru_cache", _write_atomically)


def join_pod_when_needed(pod: Pod) -> None:
    """Has this process join its pod when something first asks JAX for devices; JAX need not be imported yet."""
    after_import("jax._src.distributed", functools.partial(_complete, pod))
    after_import("jax._src.xla_bridge", _join_before_backends)


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

    import secrets  # not before programs under exec use JAX

    @functools.wraps(put)
    def put_whole(self: Any, key: str, value: bytes) -> None:
        folder = str(self.path)
        if not key or self.eviction_enabled or "://" in folder:
            put(self, key, value)
            return
        unfinished = os.path.join(folder, f"{secrets.token_hex(8)}{suffix}")  # is trimmed like an entry
        try:
            # For this user alone, whatever the umask: programs that others can write are not run.
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

        from t5x_harness.slices.attendance import Attendance, waiting_for_others

        address = coordinator_address or pod.coordinator
        if _is_reached_directly(address.rpartition(":")[0]):
            # JAX warns of a hang that proxies may cause, and none is used here.
            with contextlib.suppress(AttributeError):  # a JAX without this check
                jax.config.update("jax_check_proxy_envs", False)
        while attendances:  # of this process, which has left the slice since
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
        # Processes that this one starts from now on, such as workers that read data, are not hosts of the slice.
        for name in pod.variables():
            os.environ.pop(name, None)

    distributed.__dict__["initialize"] = initialize


def _is_reached_directly(host: str) -> bool:
    """Returns whether this process reaches a host without a proxy, according to both spellings of the variable."""
    return all(host in os.environ.get(name, host).split(",") for name in ("no_proxy", "NO_PROXY")) and (
        "no_proxy" in os.environ or "NO_PROXY" in os.environ
    )


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
