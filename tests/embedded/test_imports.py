"""Importing T5X imports neither TensorFlow nor SeqIO: what is only in a signature or a class is there all the same."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import seqio
from t5x import eval as eval_lib
from t5x import infer, models, train, utils

from t5x_harness.runtime.import_hooks import EMBEDDED_PATH

pytestmark = pytest.mark.embedded("T5X itself imports both")

PROGRAM = f"""
import sys
sys.path.insert(0, {EMBEDDED_PATH!r})
import t5x.train, t5x.eval, t5x.infer, t5x.examples.t5.network
print([name for name in ("jax", "tensorflow", "seqio", "tensorboard") if name in sys.modules])
print(t5x.utils.seqio.ByteVocabulary().vocab_size, "tensorflow" in sys.modules)
"""


def test_tensorflow_and_seqio_are_imported_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    at_import, at_use = done.stdout.splitlines()
    assert at_import == "['jax']"
    assert at_use == "259 True"


@pytest.mark.parametrize(
    ("function", "parameter", "expected"),
    [
        (train.train, "inference_evaluator_cls", seqio.Evaluator),
        (eval_lib.evaluate, "inference_evaluator_cls", seqio.Evaluator),
        (infer.write_inferences_to_file, "json_encoder_cls", seqio.TensorAndNumpyEncoder),
    ],
)
def test_defaults_are_seqios_classes(function: object, parameter: str, expected: type) -> None:
    default = inspect.signature(function).parameters[parameter].default  # type: ignore[arg-type]
    assert default == expected
    assert (repr(default), hash(default), default.__name__) == (repr(expected), hash(expected), expected.__name__)
    assert default != seqio.Task


def test_attributes_are_seqios_classes() -> None:
    assert models.EncoderDecoderModel.FEATURE_CONVERTER_CLS is seqio.EncDecFeatureConverter
    assert models.DecoderOnlyModel.FEATURE_CONVERTER_CLS is seqio.DecoderFeatureConverter
    assert utils.TensorBoardLogger is seqio.TensorBoardLogger
    with pytest.raises(AttributeError, match=r"module 't5x\.utils' has no attribute 'TensorBoard'"):
        utils.TensorBoard  # noqa: B018
