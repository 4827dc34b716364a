"""What the variables of a TensorFlow T5 checkpoint are called in T5X."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from t5x._shown_as import shown_as

_Place = Mapping[str, str]
_Translation = Callable[..., tuple[str | None, Any]]

_SLOTS = {"_slot_v": "v", "_slot_vr": "v_row", "_slot_vc": "v_col"}
_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "out"}
_TOWER = r"(?P<tower>encoder|decoder|transformer)"  # "transformer" is the tower of a decoder-only model
_BLOCK = _TOWER + r"/block_(?P<block>\d+)/layer_(?P<layer>\d+)"

# Norms of a block in order of its layers.
_BLOCK_NORMS = {
    "encoder": ("pre_attention", "pre_mlp"),
    "decoder": ("pre_self_attention", "pre_cross_attention", "pre_mlp"),
    "transformer": ("pre_self_attention", "pre_mlp"),
}
_ATTENTION = {"SelfAttention": "self_attention", "EncDecAttention": "encoder_decoder_attention"}


@shown_as("t5x.checkpoint_importer")
class CheckpointTranslator:
    """Translates the names, and if need be the values, of a flat checkpoint.

    Attributes:
        rules: pairs of a compiled pattern and a function, tried in order.
    """

    def __init__(self) -> None:
        self.rules: list[tuple[re.Pattern[str], _Translation]] = []

    def add(self, pattern: str) -> Callable[[_Translation], _Translation]:
        """Returns a decorator that adds a rule.

        Args:
            pattern: a regular expression for whole names. The function is called with the options of :meth:`apply`, the
                name, the value and the groups, and returns the new name and value; None as name drops the variable.
        """

        def register(function: _Translation) -> _Translation:
            self.rules.append((re.compile(pattern), function))
            return function

        return register

    def apply(self, flatdict: Mapping[str, Any], **opts: Any) -> dict[str, Any]:
        """Returns the translated checkpoint.

        Args:
            flatdict: values by name.
            **opts: options for the rules.

        Raises:
            ValueError: there are names that no rule is for.
        """
        translated, unknown = {}, []
        for name, value in flatdict.items():
            for pattern, function in self.rules:
                match = pattern.fullmatch(name)
                if match:
                    new_name, new_value = function(opts, name, value, *match.groups())
                    if new_name is not None:
                        translated[new_name] = new_value
                    break
            else:
                unknown.append(name)
        if unknown:
            raise ValueError(f"No translation is known for {len(unknown)} variables: {', '.join(sorted(unknown)[:10])}")
        return translated


def _tower(name: str) -> str:
    return "decoder" if name == "transformer" else name


def _layer(place: _Place) -> str:
    return f"{_tower(place['tower'])}/layers_{int(place['block'])}"


def _attention(place: _Place) -> str:
    kind = "attention" if place["tower"] == "encoder" else _ATTENTION[place["kind"]]
    return f"{_layer(place)}/{kind}/{_PROJECTIONS[place['matrix']]}/kernel"


def _mlp(place: _Place) -> str:
    number = f"_{place['number']}" if place["number"] else ""
    return f"{_layer(place)}/mlp/{place['matrix']}{number}/kernel"


def _block_norm(place: _Place) -> str:
    return f"{_layer(place)}/{_BLOCK_NORMS[place['tower']][int(place['layer'])]}_layer_norm/scale"


# Parameters of T5 and T5.1.1: the TensorFlow name, without the optimizer's suffix, and the T5X name.
_PARAMETERS: tuple[tuple[str, Callable[[_Place], str]], ...] = (
    (r"shared/embedding", lambda place: "token_embedder/embedding"),
    (rf"{_TOWER}/embedding", lambda place: f"{_tower(place['tower'])}/token_embedder/embedding"),
    (
        rf"{_BLOCK}/SelfAttention/relative_attention_bias",
        lambda place: f"{_layer(place)}/relpos_bias/rel_embedding",
    ),
    (rf"{_BLOCK}/(?P<kind>SelfAttention|EncDecAttention)/(?P<matrix>[qkvo])", _attention),
    (rf"{_BLOCK}/DenseReluDense/(?P<matrix>wi|wo)(?:_(?P<number>\d+))?/kernel", _mlp),
    (rf"{_BLOCK}/(?:layer|rms)_norm/scale", _block_norm),
    (
        rf"{_TOWER}/(?:final_layer|rms)_norm/scale",
        lambda place: f"{_tower(place['tower'])}/{_tower(place['tower'])}_norm/scale",
    ),
    (r"(?:decoder|transformer)/logits/kernel", lambda place: "decoder/logits_dense/kernel"),
)


def _translate(
    pattern: re.Pattern[str],
    new_name: Callable[[_Place], str],
    opts: Any,
    name: str,
    value: Any,
    *groups: str | None,
) -> tuple[str, Any]:
    del opts, name
    by_number = sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)
    place = {group: text or "" for group, text in zip(by_number, groups, strict=True)}
    parameter = new_name(place)
    if place["slot"]:
        return f"state/param_states/{parameter}/{_SLOTS[place['slot']]}", value
    return f"target/{parameter}", value


def t5_translator() -> CheckpointTranslator:
    """Returns the translation for T5 and T5.1.1 with Adafactor."""
    translator = CheckpointTranslator()
    translator.add("global_step")(lambda opts, name, value: ("state/step", value.astype("int32")))
    for pattern, new_name in _PARAMETERS:
        whole = re.compile(rf"{pattern}(?P<slot>{'|'.join(_SLOTS)}|)")
        translator.add(whole.pattern)(functools.partial(_translate, whole, new_name))
    return translator
