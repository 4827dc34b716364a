"""Compiles a tiny training step for a TPU, with names like those of T5X's steps, and writes the compiler's dumps.

Run as ``python tests/aot/tiny_step.py FOLDER [TOPOLOGY]``. The files in ``tests/reference/aot`` were made this way,
and then shortened with ``cut``.
"""

import json
import os
import re
import sys
from pathlib import Path

NAMES = {
    "program.txt": "*.after_optimizations.txt",
    "buffers.txt": "*.after_optimizations-buffer-assignment.txt",
    "live_ranges.txt": "*.after_optimizations-live-range.txt",
}


def compile_tiny_step(folder: Path, topology: str) -> None:
    """Compiles the step for a mesh of (devices / 2, 2), and writes the compiler's own figures to ``facts.json``."""
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": "v3-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    os.environ.pop("XLA_FLAGS", None)
    import flax.linen as nn
    import flax.struct
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            hidden = nn.relu(nn.Dense(256, use_bias=False, dtype=jnp.bfloat16, name="wi")(x))
            return x + nn.Dense(64, use_bias=False, dtype=jnp.bfloat16, name="wo")(hidden)

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, x):
            for number in range(2):
                x = Layer(name=f"layers_{number}")(x)
            return nn.Dense(1000, use_bias=False, name="logits_dense")(x)

    class Optimizer(flax.struct.PyTreeNode):
        target: dict
        state: dict

    class TrainState(flax.struct.PyTreeNode):
        _optimizer: Optimizer

    mesh = Mesh(
        np.array(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices).reshape(-1, 2),
        ("data", "model"),
    )
    model = Transformer()
    tokens = jax.ShapeDtypeStruct((32, 128, 64), jnp.bfloat16)
    target = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros(tokens.shape, tokens.dtype)))["params"]

    def placed(shape, spec):
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    def spec_of(path, shape):
        return placed(shape, ("model", None) if "wo" in jax.tree_util.keystr(path) else (None, "model"))

    target = jax.tree_util.tree_map_with_path(spec_of, target)
    state = TrainState(_optimizer=Optimizer(target=target, state={"momentum": target}))
    batch = {"inputs": placed(tokens, ("data",))}

    def train_step(train_state, batch):
        def loss(params):
            return jnp.mean(model.apply({"params": params}, batch["inputs"]) ** 2)

        value, gradients = jax.value_and_grad(loss)(train_state._optimizer.target)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, train_state._optimizer.state["momentum"], gradients)
        target = jax.tree.map(lambda p, m: p - 0.1 * m, train_state._optimizer.target, momentum)
        return TrainState(_optimizer=Optimizer(target=target, state={"momentum": momentum})), value

    options = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
    compiled = jax.jit(train_step, donate_argnums=0).lower(state, batch).compile(compiler_options=options)
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
    facts = {
        "peak_memory_in_bytes": memory.peak_memory_in_bytes,
        "argument_size_in_bytes": memory.argument_size_in_bytes,
        "temp_size_in_bytes": memory.temp_size_in_bytes,
        "flops": costs["flops"],
        "bytes accessed": costs["bytes accessed"],
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def cut(folder: Path, to: Path) -> None:
    """Copies the files that tests read, without the parts that no reader needs."""
    to.mkdir(parents=True, exist_ok=True)
    for name, pattern in NAMES.items():
        (file,) = folder.glob(pattern)
        text = file.read_text()
        text = re.sub(r", (backend_config|frontend_attributes)=\{.*?\}(?=$|, metadata)", "", text, flags=re.M)
        text = re.sub(r" stack_frame_id=\d+", "", text)
        text = re.sub(r"^HloModule (\S+?),.*", r"HloModule \1", text, flags=re.M)
        text = re.sub(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d.*\n)*\n", "", text, flags=re.M)
        if name == "buffers.txt":
            text = text.partition("\n\n")[0] + "\n"
        if name == "live_ranges.txt":
            text = text.partition("  Live ranges at")[0]
        (to / name).write_text(text)
    (to / "facts.json").write_text((folder / "facts.json").read_text())


if __name__ == "__main__":
    compile_tiny_step(Path(sys.argv[1]), *(sys.argv[2:] or ["v3:2x2"]))
