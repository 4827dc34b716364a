"""The parts of T5X that this runtime lacks, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_INSTALL = "install T5X itself (a checkout of github.com/google-research/t5x on PYTHONPATH), which is then used"
_RULES = "t5x.checkpoint_importer.t5_importer.apply translates the names of a Mesh TensorFlow checkpoint"

MODULES = {
    "t5x.contrib": f"t5x.contrib (moe, calm, gpu) is a package of projects built on T5X: {_INSTALL}",
    "t5x.fiddle_configs": "they are the files of t5x/configs/runs in Fiddle: write your own, which --fdl_config takes",
    "t5x.scripts": "checkpoints of TensorFlow need no conversion: name one as RestoreCheckpointConfig.path",
    "t5x.tasks": "it registers nothing in the public T5X: import the module that registers the tasks",
}
"""What to use instead of each missing module."""

NAMES: dict[str, dict[str, str]] = {
    "t5x.checkpoint_importer": dict.fromkeys(
        "SLOT_MAP TOWER_MAP attention_layers final_layernorms final_logits global_step layernorms mlpblock "
        "rel_embeddings separate_embeddings shared_embeddings".split(),
        _RULES,
    ),
    "t5x.export_lib": dict.fromkeys(
        "bucketize_tokenized_input create_decoder_preprocessor create_dual_encoder_preprocessor "
        "create_preprocessor_with_decoder_params generate_examples_with_sequence_lengths".split(),
        f"write one of your own for save.create_preprocessor_fn or generate_examples_fn, or {_INSTALL}",
    ),
}
"""What to use instead of each missing name, by module."""


def refuse_module(module: str, *, is_program: bool) -> NoReturn:
    """Stops the import of a missing module, or the program that it would have been (``python -m``)."""
    message = f"the embedded T5X runtime has no {module}: {MODULES[module]}"
    raise SystemExit(message) if is_program else ImportError(message, name=module)


def name_getter(module: str) -> Callable[[str], Any]:
    """Returns a module's ``__getattr__``: its AttributeError says what to use instead of a missing name."""

    def getter(name: str) -> Any:
        instead = NAMES[module].get(name)
        why = f" in the embedded T5X runtime: {instead}" if instead else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{why}", name=name)

    return getter
