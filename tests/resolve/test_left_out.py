"""Features that a task does not leave are found before a train step, and said once."""

from tasks_in_text import SOURCE, STEPS, Find, Resolve, module, of

from t5x_harness.findings.rule import trained
from t5x_harness.spec import Outcome

MIXED = trained("MIXTURE_OR_TASK_NAME = 'mixed'")
LANGUAGE_MODEL = """
from t5x import models
MODEL = @models.DecoderOnlyModel()
models.DecoderOnlyModel:
  module = @network.Transformer()
  vocabulary = %VOCABULARY
  optimizer_def = %OPTIMIZER
TASK_FEATURE_LENGTHS = {'targets': 32}
"""


def mixture(made: str = "row['inputs']") -> dict[str, str]:
    """Returns a module with a mixture of two tasks, of which the second is given its features by a function."""
    return module(
        after=f"""
MAYBE = {{'inputs': seqio.Feature(seqio.ByteVocabulary(), required=False), 'targets': FEATURE}}


def text(dataset):
    return dataset.map(lambda row: {{'targets': {made}}})


for name, first in {{'pairs': [], 'text': [text]}}.items():
    seqio.TaskRegistry.add(
        name, source={SOURCE}, preprocessors=[*first, *{STEPS}], output_features=MAYBE, metric_fns=[exact]
    )
seqio.MixtureRegistry.add('mixed', ['pairs', 'text'], default_rate=1.0)
"""
    )


def test_a_feature_that_the_model_takes(resolve: Resolve) -> None:
    result = resolve(MIXED, mixture())
    error = of(result, "SEQ06")
    assert result.outcome is Outcome.FAILED
    assert error.message == (
        "task text leaves no feature inputs, and the model (EncoderDecoderModel) takes it; the task leaves: targets, "
        "targets_pretokenized"
    )
    assert error.fix == (
        "let a preprocessor make inputs, which may be empty text, or use a model that does not take it"
    )
    assert not [f for f in result.findings if f.code == "SEQ07"], "one mistake has one finding"


def test_a_feature_that_only_the_mixture_needs(find: Find) -> None:
    error = find("SEQ07", mixture(), gin=MIXED + LANGUAGE_MODEL)
    assert error.message == (
        "the tasks of mixture mixed do not leave the same features: pairs leaves inputs, and text does not"
    )
    assert error.fix == "let text leave inputs, which may be empty, or pairs leave it out"


def test_an_empty_feature_is_enough(resolve: Resolve) -> None:
    result = resolve(MIXED, mixture("row['inputs'], 'inputs': ''"))
    assert not [f for f in result.findings if f.code in ("SEQ06", "SEQ07")]


def test_a_converter_of_the_users_own_may_take_less(resolve: Resolve) -> None:
    own = """
import t5x.models


class Converter(seqio.EncDecFeatureConverter):
    def __call__(self, ds, task_feature_lengths):
        return super().__call__(ds.map(lambda row: {'inputs': [0], **row}), task_feature_lengths)


class Model(t5x.models.EncoderDecoderModel):
    FEATURE_CONVERTER_CLS = Converter
"""
    files = mixture()
    files["counting.py"] += own
    gin = trained(
        "MIXTURE_OR_TASK_NAME = 'text'",
        "MODEL = @counting.Model()",
        "counting.Model:",
        "  module = @network.Transformer()",
        "  input_vocabulary = %VOCABULARY",
        "  output_vocabulary = %VOCABULARY",
        "  optimizer_def = %OPTIMIZER",
    )
    assert not [f for f in resolve(gin, files).findings if f.code == "SEQ06"]


def test_none_as_a_feature_is_named_with_its_function(find: Find) -> None:
    error = find("SEQ37", mixture("row['targets'], 'inputs': None"), "MIXTURE_OR_TASK_NAME = 'text'")
    assert "leaves None as feature inputs of task text, which tokenize cannot take" in error.message
    assert error.fix == "leave inputs out, or let it be '', empty text"


def test_a_task_without_splits_in_a_mixture(find: Find) -> None:
    files = mixture()
    some = SOURCE.replace("splits=('train', 'validation')", "splits=('train', 'validation') if name == 'pairs' else ()")
    files["counting.py"] = files["counting.py"].replace(f"name, source={SOURCE}", f"name, source={some}")
    assert find("SEQ19", files, gin=MIXED).message == "task text has no splits, so that nothing of it can be read"
