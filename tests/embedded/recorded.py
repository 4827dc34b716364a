"""Compares a training run with a run that was recorded with T5X (``tests/reference/trajectories``).

:func:`observe` reads the files of a run into the form of the records. :func:`differences` compares the two and imports
nothing heavy.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parents[1] / "reference"

# Files below these folders are not in the records' lists of files.
_UNLISTED = re.compile(
    r"(train|training_eval|inference_eval)/|checkpoint_\d+/(dataset|state/(d|ocdbt\.process_0|array_metadatas))/"
)


@functools.cache
def record(case: str) -> dict[str, Any]:
    """Returns the record of ``case``: its gin text, scalars, files, predictions, model info and final state."""
    content: dict[str, Any] = json.loads((REFERENCE / "trajectories" / f"{case}.json").read_text())
    return content


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """The largest allowed differences between two runs, relative to the recorded value.

    Attributes:
      scalar: the tolerance for a scalar at one step.
      accuracy: the absolute tolerance for a scalar ``accuracy`` at one step: a token is right or wrong, and rounding
        decides a tie.
      parameter: the tolerance for the sum and the sum of absolute values of a final parameter, relative to the latter.
      state: the tolerance for the same sums of any other leaf of the final state.
    """

    scalar: float = 1e-4
    accuracy: float = 0.0
    parameter: float = 1e-3
    state: float = 1e-3


def observe(model_dir: str, final_step: int) -> dict[str, Any]:
    """Reads the files of a run; returns their contents under the keys of the record.

    Args:
      model_dir: the folder of the run.
      final_step: the step of the checkpoint to read as the final state.
    """
    root = Path(model_dir)
    return {
        "scalars": read_scalars(root),
        "files": sorted(path.relative_to(root).as_posix() for path in root.rglob("*")),
        "final_state": read_state(root / f"checkpoint_{final_step}" / "state"),
        "model_info": (root / "model-info.txt").read_text(),
        "inference_eval": {
            path.name: [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted(root.glob("inference_eval/*.jsonl"))
        },
    }


def read_scalars(root: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Returns every scalar below ``root``: values by step, by tag, by folder."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    found: dict[str, dict[str, dict[str, float]]] = {}
    for file in sorted(root.rglob("events.out.tfevents.*")):
        tags = found.setdefault(file.parent.relative_to(root).as_posix(), {})
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    number = float(tensor_util.make_ndarray(value.tensor).item())
                    tags.setdefault(value.tag, {})[str(event.step)] = number
    return found


def read_state(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """Returns the shape, dtype, sum and sum of absolute values of every leaf of an orbax checkpoint, by path."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    reader = ocp.PyTreeCheckpointer()
    tree = reader.metadata(checkpoint.absolute()).item_metadata.tree
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    state = reader.restore(checkpoint.absolute(), restore_args=as_numpy)
    leaves = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        exact = np.asarray(leaf).astype(np.float64)
        leaves["/".join(str(key.key) for key in path)] = {
            "shape": list(exact.shape),
            "dtype": str(np.asarray(leaf).dtype),
            "sum": float(exact.sum()),
            "abs_sum": float(np.abs(exact).sum()),
        }
    return leaves


def differences(expected: Mapping[str, Any], got: Mapping[str, Any], tolerance: Tolerance) -> list[str]:
    """Returns every difference between a run and its record, one line each; empty if they are the same."""
    return [
        *_different_scalars(expected["scalars"], got["scalars"], tolerance),
        *_different_files(set(expected["files"]), set(got["files"])),
        *_different_states(expected["final_state"], got["final_state"], tolerance),
        *_different_predictions(expected["inference_eval"], got["inference_eval"], tolerance.scalar),
        *([] if expected["model_info"] == got["model_info"] else ["model-info.txt has another text"]),
    ]


def _different_scalars(expected: Mapping[str, Any], got: Mapping[str, Any], tolerance: Tolerance) -> Iterator[str]:
    if set(expected) != set(got):
        yield f"TensorBoard folders are {sorted(got)}, not {sorted(expected)}"
    for folder, tags in expected.items():
        written = {tag: values for tag, values in got.get(folder, {}).items() if not tag.startswith("timing/")}
        if set(tags) != set(written):
            yield f"{folder}: tags missing {sorted(set(tags) - set(written))}, more {sorted(set(written) - set(tags))}"
        for tag in sorted(set(tags) & set(written)):
            if list(map(int, tags[tag])) != sorted(map(int, written[tag])):
                yield f"{folder}/{tag}: written at steps {list(written[tag])}, not {list(tags[tag])}"
            for step in set(tags[tag]) & set(written[tag]):
                want, have = tags[tag][step], written[tag][step]
                allowed = max(tolerance.scalar * max(abs(want), 1e-6), tolerance.accuracy if tag == "accuracy" else 0)
                if not abs(have - want) <= allowed:  # this form makes NaN differ
                    yield f"{folder}/{tag} at step {step}: {have}, not {want}"


def _different_files(expected: set[str], got: set[str]) -> Iterator[str]:
    if expected - got:
        yield f"files missing: {sorted(expected - got)}"
    if more := sorted(name for name in got - expected if not _UNLISTED.match(name)):
        yield f"more files: {more}"


def _different_states(expected: Mapping[str, Any], got: Mapping[str, Any], tolerance: Tolerance) -> Iterator[str]:
    if set(expected) != set(got):
        yield f"leaves missing {sorted(set(expected) - set(got))}, more {sorted(set(got) - set(expected))}"
    for path in sorted(set(expected) & set(got)):
        want, have = expected[path], got[path]
        for kind in ("shape", "dtype"):
            if want[kind] != have[kind]:
                yield f"{path}: {kind} {have[kind]}, not {want[kind]}"
        allowed = tolerance.parameter if path.startswith("target/") else tolerance.state
        for kind in ("sum", "abs_sum"):
            if not abs(have[kind] - want[kind]) <= allowed * max(abs(want["abs_sum"]), 1e-9):
                yield f"{path}: {kind} {have[kind]}, not {want[kind]}"


def _different_predictions(expected: Mapping[str, Any], got: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    if set(expected) != set(got):
        yield f"inference_eval has {sorted(got)}, not {sorted(expected)}"
    for name in sorted(set(expected) & set(got)):
        if len(expected[name]) != len(got[name]):
            yield f"{name}: {len(got[name])} lines, not {len(expected[name])}"
        for number, (want, have) in enumerate(zip(expected[name], got[name], strict=False), start=1):
            for key in sorted(set(want) | set(have)):
                if not same(want.get(key), have.get(key), tolerance):
                    yield f"{name} line {number}, {key}: {have.get(key)!r}, not {want.get(key)!r}"


def same(want: Any, have: Any, tolerance: float) -> bool:
    """Tells whether two JSON values are the same, with a relative ``tolerance`` for floats."""
    if isinstance(want, float) and isinstance(have, float):
        return abs(have - want) <= tolerance * max(abs(want), 1e-6)
    return bool(want == have)


def changed(value: Any, replacement: Any, *path: str) -> Any:
    """Returns a copy of nested mappings with one entry replaced."""
    if not path:
        return replacement
    return {**value, path[0]: changed(value[path[0]], replacement, *path[1:])}


def parameter_differences(network: str, variables: Any) -> list[str]:
    """Returns all differences of parameters and their logical axes from those recorded of an example network."""
    import numpy as np
    from flax import traverse_util
    from flax.core import unfreeze

    trees = json.loads((REFERENCE / "param_trees.json").read_text())[network]
    got = traverse_util.flatten_dict(unfreeze(variables), sep="/")
    lines = [f"parameters missing {sorted(set(trees) - set(got))}, more {sorted(set(got) - set(trees))}"]
    if set(trees) == set(got):
        lines.clear()
    for name in sorted(set(trees) & set(got)):
        fact, value = trees[name], got[name]
        if "axes" in fact:
            have: Any = {"axes": list(value.names)}
        else:
            exact = np.asarray(value, np.float64)
            sums = {"sum": float(exact.sum()), "abs_sum": float(np.abs(exact).sum())}
            close = all(abs(sums[key] - fact[key]) <= 1e-5 * max(fact["abs_sum"], 1e-9) for key in sums)
            have = {"shape": list(value.shape), "dtype": str(value.dtype)} | {
                key: fact[key] if close else sums[key] for key in sums
            }
        if have != fact:
            lines.append(f"{name}: {have}, not {fact}")
    return lines
