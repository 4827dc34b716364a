"""Objects that use the stack in the tests' runs."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Stack:
    def __init__(self, argument: Mapping[str, Any], _progress: Callable[[Mapping[str, Any]], None]) -> None:
        jax.config.update("jax_num_cpu_devices", argument["devices"])

    def train(self) -> dict[str, Any]:
        devices = jax.devices()
        sharding = jax.sharding.NamedSharding(jax.make_mesh((len(devices),), ("data",)), jax.P("data"))
        values = jax.device_put(jnp.ones((len(devices), 4)), sharding)
        assert len(values.sharding.device_set) == len(devices)
        return {"devices": len(devices), "sum": float(jax.jit(lambda x: (x * 2).sum())(values))}

    def read(self, count: int) -> int:
        import tensorflow as tf

        numbers = tf.data.Dataset.range(1, count + 1).map(lambda x: x, num_parallel_calls=4).batch(8).prefetch(2)
        return int(sum(batch.sum() for batch in numbers.as_numpy_iterator()))

    def matmul(self) -> float:
        import tensorflow as tf

        return float(tf.matmul(tf.ones((300, 300)), tf.ones((300, 300)))[0, 0])

    def save(self, folder: str) -> list[float]:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, {"x": jnp.arange(4.0)})
            checkpointer.wait_until_finished()
            restored = checkpointer.restore(folder)
        return [float(x) for x in restored["x"]]

    def random(self) -> float:
        return float(np.random.rand())


class Options:
    def __init__(self, _argument: Mapping[str, Any], _progress: Callable[[Mapping[str, Any]], None]) -> None:
        self.events: list[str] = []
        jax.monitoring.register_event_listener(lambda name, **_: self.events.append(name))

    def options(self) -> dict[str, Any]:
        return {
            "jax_enable_x64": jax.config.jax_enable_x64,
            "devices": jax.local_device_count(),
            "jax_debug_nans": jax.config.jax_debug_nans,
        }

    def compile(self) -> dict[str, float]:
        self.events.clear()
        result = jax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))
        count = self.events.count
        return {
            "hits": count("/jax/compilation_cache/cache_hits"),
            "misses": count("/jax/compilation_cache/cache_misses"),
            "result": float(result[0, 0]),
        }

    def write_entries(self, folder: str, text: str) -> list[str]:
        """Returns the text of an entry that is replaced while being read, and its new text; another write fails."""
        from jax._src.lru_cache import LRUCache

        cache = LRUCache(folder, max_size=-1)
        cache.put("key", text.encode())
        with Path(folder, "key-cache").open() as reader:
            begin = reader.read(1)
            cache.put("key", b"other")
            read = begin + reader.read()
        with contextlib.suppress(TypeError):
            cache.put("broken", None)  # type: ignore[arg-type]
        return [read, (cache.get("key") or b"").decode()]
