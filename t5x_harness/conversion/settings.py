"""The settings of a model that its arrays do not show, such as activations, from its run's Gin config."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t5x_harness.conversion.errors import ConversionError
from t5x_harness.gin.program import Binding, GinProgram
from t5x_harness.gin.reading import program_of
from t5x_harness.gin.values import Reference
from t5x_harness.spec import RunSpec

BYTES = "bytes"
"""The user's name for the vocabulary of ByT5."""

_SENTENCEPIECE, _BYTES = "SentencePieceVocabulary", "ByteVocabulary"
_OF_T5 = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"  # of t5.data.get_default_vocabulary()
_SIZES = {"num_heads": "num_heads", "head_dim": "head_dim", "emb_dim": "emb_dim", "mlp_dim": "mlp_dim"}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A vocabulary.

    Attributes:
      path: the path of its SentencePiece model; None for bytes.
      extra_ids: sentinels that SeqIO adds to the model's own pieces.
    """

    path: str | None
    extra_ids: int = 0

    def __str__(self) -> str:
        return self.path or "bytes"


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """The settings of a model; None for one that the config does not give.

    Attributes:
      activations: the activations of the feed-forward blocks, by T5X's names.
      dropout_rate: the dropout rate of training.
      vocabulary: the vocabulary of inputs and targets.
      sizes: the sizes of the network, by the names of ``Architecture``.
      doubt: why the vocabulary is not known, in words; empty if it is, or no config was read.
    """

    activations: tuple[str, ...] | None = None
    dropout_rate: float | None = None
    vocabulary: Vocabulary | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    doubt: str = ""


def settings_of(
    gin_files: Sequence[str], bindings: Sequence[str] = (), search_paths: Sequence[str] = (), cwd: str = "."
) -> ModelSettings:
    """Reads settings from a config without executing it.

    Args:
      gin_files: the files of a model or a run, such as the ``config.gin`` that T5X writes into MODEL_DIR.
      bindings: Gin statements that are parsed after the files.
      search_paths: folders where files and includes are looked up.
      cwd: the folder that relative paths start from.

    Raises:
      ConversionError: a file is missing.
    """
    from t5x_harness.lint.stage import missing_gin_files

    spec = RunSpec(tuple(gin_files), tuple(bindings), tuple(search_paths), cwd=str(Path(cwd).absolute()))
    for missing in missing_gin_files(spec):
        raise ConversionError(missing)
    program = program_of(spec)
    activations = _value(program, "mlp_activations")
    vocabulary, doubt = _vocabulary(program)
    rate = _value(program, "dropout_rate")
    sizes = {name: _value(program, param) for param, name in _SIZES.items()}
    return ModelSettings(
        activations=tuple(map(str, activations)) if isinstance(activations, list | tuple) else None,
        dropout_rate=float(rate) if isinstance(rate, int | float) else None,
        vocabulary=vocabulary,
        sizes=tuple((name, value) for name, value in sizes.items() if isinstance(value, int)),
        doubt=doubt,
    )


def _value(program: GinProgram, param: str) -> Any:
    """Returns the value of a parameter of the network's config, or None if it is not bound, or bound to several."""
    networks = {b.target for b in program.final_bindings if b.param == "emb_dim"}
    found = [
        program.resolve(b).value
        for b in program.final_bindings
        if b.param == param and (b.target in networks or b.target.endswith("T5Config"))
    ]
    return found[0] if found and all(value == found[0] for value in found) else None


def _vocabulary(program: GinProgram) -> tuple[Vocabulary | None, str]:
    """Returns the model's vocabulary, or None and why it is not known."""
    found = {}
    for param in ("input_vocabulary", "output_vocabulary"):
        for binding in program.final_bindings:
            if binding.param == param:
                found[param] = _of_reference(program, program.resolve(binding).value)
    known = set(found.values())
    if not found:
        return None, "the config binds no input_vocabulary of a model"
    if None in known:
        return None, "the config's vocabulary is made by something other than SeqIO's two classes"
    if len(known) > 1:
        names = " and ".join(sorted(map(str, known)))
        return None, f"inputs and targets have vocabularies of their own: {names}"
    return next(iter(known)), ""


def _of_reference(program: GinProgram, value: Any) -> Vocabulary | None:
    if not isinstance(value, Reference):
        return None
    name = value.selector.rpartition(".")[2]
    if name == "get_default_vocabulary":
        return Vocabulary(_OF_T5)
    extra_ids = _argument(program, value, "extra_ids")
    extra = extra_ids if isinstance(extra_ids, int) else 0
    if name == _BYTES:
        return Vocabulary(None, extra)
    path = _argument(program, value, "sentencepiece_model_file")
    return Vocabulary(path, extra) if name == _SENTENCEPIECE and isinstance(path, str) else None


def _argument(program: GinProgram, reference: Reference, param: str) -> Any:
    bound: Binding | None = program.lookup(reference.target or reference.selector, param, reference.scope)
    return program.resolve(bound).value if bound is not None else None
