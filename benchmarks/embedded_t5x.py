"""Compares the embedded T5X with T5X itself in the same environment: import, compiling and the train step.

    T5X_HARNESS_TEST_T5X=/path/to/a/checkout/of/t5x python benchmarks/embedded_t5x.py [--rounds 3] [--write PAGE]

T5X's own requirements have to be installed; more folders that it needs can follow its own, separated by colons.
Each figure has its own process, and the two versions take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from reporting import report

ROOT = Path(__file__).resolve().parents[1]
EMBEDDED = ROOT / "t5x_harness" / "embedded"

IMPORT = """
import time
begin = time.perf_counter()
import t5x.train
print(time.perf_counter() - begin)
"""

STEP = """
import json, sys, time
import jax, numpy as np, seqio
from t5x import adafactor, models, partitioning, trainer, utils
from t5x.examples.t5 import network

size, steps, microbatches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None
SIZES = {  # as T5X's own tiny.gin and small.gin
    "tiny": dict(emb_dim=8, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, head_dim=3, mlp_dim=16),
    "small": dict(emb_dim=512, num_heads=6, num_encoder_layers=8, num_decoder_layers=8, head_dim=64, mlp_dim=1024),
}
config = network.T5Config(
    vocab_size=32128, dtype="float32", mlp_activations=("gelu", "linear"), dropout_rate=0.1,
    logits_via_embedding=False, **SIZES[size])
vocabulary = seqio.ByteVocabulary()
model = models.EncoderDecoderModel(
    module=network.Transformer(config), input_vocabulary=vocabulary, output_vocabulary=vocabulary,
    optimizer_def=adafactor.Adafactor(0.001, logical_factor_rules=adafactor.standard_logical_factor_rules()))
rows, length = 8, 64
shapes = {name: (rows, length) for name in ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")}
partitioner = partitioning.PjitPartitioner(num_partitions=1)
initializer = utils.TrainStateInitializer(
    optimizer_def=model.optimizer_def, init_fn=model.get_initial_variables, input_shapes=shapes,
    partitioner=partitioner)
state = initializer.from_scratch(jax.random.PRNGKey(0))
made = trainer.Trainer(
    model, train_state=state, partitioner=partitioner, eval_names=[], summary_dir=None,
    train_state_axes=initializer.train_state_axes, rng=jax.random.PRNGKey(1),
    learning_rate_fn=utils.create_learning_rate_scheduler(), num_microbatches=microbatches)
numbers = np.random.RandomState(0)
batch = {name: numbers.randint(3, 1000, shape).astype(np.int32) for name, shape in shapes.items()}
batch["decoder_loss_weights"] = np.ones((rows, length), np.int32)

def repeated():
    while True:
        yield batch

begin = time.perf_counter()
made.compile_train(batch)
compiled = time.perf_counter() - begin
made.train(repeated(), 3)
jax.block_until_ready(made.train_state.params)
begin = time.perf_counter()
made.train(repeated(), steps)
jax.block_until_ready(made.train_state.params)
print(json.dumps([compiled, (time.perf_counter() - begin) / steps]))
"""


def run(program: str, path: str, *arguments: str) -> str:
    """Runs a program with one T5X on its import path; returns its last line."""
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{path}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def measure() -> dict[str, float]:
    """Makes one round; returns the seconds of both versions, and the ratio of the embedded T5X to T5X itself."""
    seconds: dict[str, list[float]] = {}
    for path in (os.environ["T5X_HARNESS_TEST_T5X"], str(EMBEDDED)):
        seconds.setdefault("import t5x.train", []).append(float(run(IMPORT, path)))
        for size, steps in (("tiny", 40), ("small", 4)):
            for microbatches in (0, 4):
                compiled, step = json.loads(run(STEP, path, size, str(steps), str(microbatches)))
                kind = f"{size}, {microbatches} microbatches" if microbatches else size
                seconds.setdefault(f"compile, {kind}", []).append(compiled)
                seconds.setdefault(f"step, {kind}", []).append(step)
    figures = {}
    for what, (real, own) in seconds.items():
        figures |= {what: own, f"{what} / of T5X": own / real}
    return figures


if __name__ == "__main__":
    report("embedded_t5x", measure, rounds=3, description=__doc__)
