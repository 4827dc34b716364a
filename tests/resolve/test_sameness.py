"""Examples that all say the same, or nothing: the preprocessor that makes them so, and tasks that mean it."""

from typing import Any

import numpy as np
import pytest
import seqio
import tensorflow as tf
from t5x import utils
from tasks_in_text import Resolve, module

from t5x_harness.findings.rule import trained
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.sameness import Origin, blank, formatted_tensor, is_same, origin_of
from t5x_harness.resolve.samples import Sample
from t5x_harness.spec import Finding, Location, Outcome, Severity, StageResult

MANY = "{'inputs': [f'one {n}' for n in range(99)], 'targets': [f'{n % 3}' for n in range(99)]}"
FEW = "{'inputs': ['one', 'two'], 'targets': ['1', '2']}"
PROMPT = "{'inputs': ['Tell a story.'] * 9, 'targets': [f'story {n}' for n in range(9)]}"
MIXED = trained("MIXTURE_OR_TASK_NAME = 'mixed'", "TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 64}")


def mixed(**tasks: tuple[str, ...]) -> dict[str, str]:
    """Returns a module with a mixture of tasks; each is given by its rows and by preprocessors before and after EOS."""
    text = "".join(
        f"""
seqio.TaskRegistry.add(
    '{name}',
    source=seqio.FunctionDataSource(
        lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices({rows}), splits=("train",)
    ),
    preprocessors=[{before}seqio.preprocessors.tokenize, {after}],
    output_features={{'inputs': FEATURE, 'targets': FEATURE}},
)
"""
        for name, (rows, before, after) in tasks.items()
    )
    return module(after=f"{text}seqio.MixtureRegistry.add('mixed', {list(tasks)}, default_rate=1.0)\n")


def step(change: str) -> str:
    return f"\n        lambda d: d.map(lambda e: {{**e, {change}}}),\n        "


EOS = "seqio.preprocessors.append_eos"


def found(result: StageResult, *codes: str) -> dict[str, Finding]:
    """Returns the findings of some codes by the name of their task."""
    of_codes = [f for f in result.findings if f.code in codes]
    return {f.message.partition(" of task ")[2].partition(" ")[0] or f.message: f for f in of_codes}


def line_of(files: dict[str, str], part: str) -> int:
    return next(n for n, line in enumerate(files["counting.py"].splitlines(), start=1) if part in line)


def test_inputs_and_targets_that_preprocessors_make_the_same(resolve: Resolve) -> None:
    files = mixed(
        formatted=(MANY, step("'inputs': f\"say {e['inputs']}\""), EOS),
        replaced=(MANY, step("'inputs': 'say'"), EOS),
        labelled=(MANY, step("'targets': 'yes'"), EOS),
        all_labelled=(FEW, step("'targets': 'no'"), EOS),
        dropped=(MANY, step("'inputs': ''"), EOS),
    )
    result = resolve(MIXED, files)
    of = found(result, "SEQ42")
    error = of.pop("formatted")
    line = line_of(files, "f\"say {e['inputs']}\"")
    assert error.severity is Severity.ERROR
    assert error.location == Location("counting.py", line)
    assert error.message == (
        'inputs is the same text in all 64 sampled examples of task formatted train, \'say Tensor("args_0:0", '
        f"shape=(), dtype=string)': a lambda in counting.py:{line} makes text of the tensor itself, as an f-string or "
        "str() does, and not of its value"
    )
    assert error.fix == "join texts in TensorFlow: tf.strings.join(['...', example['...']])"
    line = line_of(files, "'inputs': 'say'")
    assert of["replaced"].location == Location("counting.py", line)
    assert of["replaced"].message == (
        "inputs is the same in all 64 sampled examples of task replaced train, 'say', and the values differ before a "
        f"lambda in counting.py:{line}"
    )
    assert {name: finding.severity for name, finding in of.items()} == {
        "replaced": Severity.WARNING,
        "labelled": Severity.NOTE,  # a sorted source may have one class first
        "all_labelled": Severity.WARNING,
        "dropped": Severity.NOTE,  # a language model drops its inputs on purpose
    }


def test_features_without_a_token(resolve: Resolve) -> None:
    zeros = f"{EOS}, lambda d: d.map(lambda e: {{**e, 'targets': tf.zeros_like(e['targets'])}})"
    files = mixed(
        padding=(MANY, "", zeros),
        all_padding=(FEW, "", zeros),
        cut=(MANY, "", f"{EOS}, lambda d: d.map(lambda e: {{**e, 'targets': e['targets'][:0]}})"),
        ended=(MANY, step("'targets': ''"), EOS),
        zero_inputs=(MANY, "", zeros.replace("targets", "inputs")),
    )
    result = resolve(MIXED, files)
    of = found(result, "SEQ42")
    assert {name: (finding.severity, finding.message.partition(" in all ")[0]) for name, finding in of.items()} == {
        "padding": (Severity.WARNING, "targets is nothing but padding (the id 0)"),
        "all_padding": (Severity.ERROR, "targets is nothing but padding (the id 0)"),
        "cut": (Severity.WARNING, "targets is empty"),
        "ended": (Severity.WARNING, "targets is nothing but the end-of-sequence id 1"),
        "zero_inputs": (Severity.WARNING, "inputs is nothing but padding (the id 0)"),
    }
    assert of["all_padding"].message == (
        "targets is nothing but padding (the id 0) in all 2 sampled examples of task all_padding train, so that the "
        "loss is over no token"
    )
    assert of["all_padding"].location == Location("counting.py", line_of(files, "'all_padding',") - 1)
    assert not found(result, "SEQ14"), "an end would not help them"


def test_tasks_that_mean_it_are_left_alone(resolve: Resolve) -> None:
    files = mixed(
        prompt=(PROMPT, "", EOS),
        one_row=("{'inputs': ['one'], 'targets': ['1']}", "", EOS),
        one_class=("{'inputs': ['a', 'b'], 'targets': ['1', '1']}", "", EOS),
        language_model=(PROMPT.replace("Tell a story.", ""), "", EOS),
        swapped=(MANY, step("'targets': e['inputs'], 'inputs': 'Count:'"), EOS),
        repeated=("{'inputs': ['a', 'a'] * 9, 'targets': ['1', '2'] * 9}", "", EOS),
    )
    result = resolve(MIXED, files)
    assert result.outcome is Outcome.PASSED
    assert not found(result, "SEQ42", "SEQ14", "SEQ41")


def test_an_end_that_features_lack_or_have_twice(resolve: Resolve) -> None:
    own = "lambda d: d.map(lambda e: {**e, 'targets': tf.concat([e['targets'], [1]], 0)})"
    files = mixed(
        twice=(MANY, "", f"{EOS}, {EOS}"),
        targets_only=(MANY, "", own),
    )
    result = resolve(MIXED, files)
    (twice,) = (f for f in result.findings if f.code == "SEQ41")
    assert twice.message == "every sampled input and target of twice ends with the end-of-sequence id 1 twice"
    assert twice.location == Location("counting.py", line_of(files, "'twice',") - 1)
    (without,) = (f for f in result.findings if f.code == "SEQ14")
    assert without.severity is Severity.NOTE
    assert without.message == (
        "feature inputs of task targets_only has add_eos=True, the default, and no sampled value ends with the "
        "end-of-sequence id 1"
    )


def test_targets_that_are_declared_without_an_end_are_a_note(resolve: Resolve) -> None:
    feature = "seqio.Feature(seqio.ByteVocabulary())"
    files = module((feature, f"{feature[:-1]}, add_eos=False)"))
    (note,) = (f for f in resolve(trained(), files).findings if f.code == "SEQ14")
    assert note.severity is Severity.NOTE
    assert note.message.endswith("; the feature has add_eos=False")


FEATURE = seqio.Feature(seqio.ByteVocabulary())


def task_of(rows: dict[str, list[str]], *steps: Any) -> seqio.Task:
    def read(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(rows)

    features = {"inputs": FEATURE, "targets": FEATURE}
    source = seqio.FunctionDataSource(read, splits=("train",))
    return seqio.Task("same", source, features, preprocessors=[*steps, seqio.preprocessors.tokenize])


def origin(rows: dict[str, list[str]], *steps: Any) -> Origin:
    dataset = utils.DatasetConfig("same", {"inputs": 8, "targets": 8}, "train", batch_size=2, shuffle=False, seed=0)
    return origin_of(DataRole("train_dataset_cfg", "train", dataset), task_of(rows, *steps), "inputs", 64)


def test_only_a_step_from_one_example_to_one_makes_them_the_same() -> None:
    rows = {"inputs": ["a", "b", "c"], "targets": ["1", "2", "3"]}

    def only_a(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.filter(lambda e: e["inputs"] == "a").repeat(2)

    def same(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda e: {**e, "inputs": "same"})

    def keep(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda e: {**e, "inputs": "same", "kept": e["inputs"]})

    assert origin(rows, only_a).step is None
    assert "same" in str(origin(rows, same).step)
    assert not origin(rows, same).moved
    assert origin(rows, keep).moved


def test_columns_of_the_source_that_no_feature_has() -> None:
    rows = {"question": ["who", "why"], "answer": ["me", "so"], "id": ["7", "7"]}

    def asked(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda e: {"inputs": "question:", "targets": e["answer"]})

    assert origin(rows, asked) == Origin(unused=("question",))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([[], []], "empty"),
        ([[0, 0], [0]], "nothing but padding (the id 0)"),
        ([[1], [1, 0]], "nothing but the end-of-sequence id 1"),
        ([[0], [2]], None),
    ],
)
def test_values_without_a_token(values: list[list[int]], expected: str | None) -> None:
    assert blank([np.array(value, np.int32) for value in values], 1) == expected


def test_values_that_have_no_ids_are_not_blank() -> None:
    assert blank([np.zeros(3, np.float32)], 1) is None
    assert blank([np.zeros((2, 2), np.int32)], 1) is None
    assert not is_same([np.zeros(3)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("say tf.Tensor(b'one', shape=(), dtype=string)", True),
        ("{'inputs': <tf.Tensor 'args_0:0' shape=() dtype=string>}", True),
        ("a Tensor has a shape", False),
    ],
)
def test_the_text_of_a_tensor(text: str, expected: bool) -> None:
    ids = np.array(FEATURE.vocabulary.encode(text), np.int32)
    sample = Sample(task_of({"inputs": [], "targets": []}), "train", ({"inputs": ids},), whole=True)
    assert formatted_tensor(sample, "inputs") == (text if expected else None)
