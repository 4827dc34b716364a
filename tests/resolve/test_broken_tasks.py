"""Tasks with a part that SeqIO cannot use: which part, where it is, and what it is given."""

import pytest
from tasks_in_text import INFER_EVAL, READ, STEPS, Find, Resolve, module

from t5x_harness.findings.rule import trained
from t5x_harness.spec import Location

FEATURE = "seqio.Feature(seqio.ByteVocabulary())"
STEP = "def step(dataset):\n    return {}\n\n\n"


def registered(files: dict[str, str]) -> Location:
    """Returns the line where the module registers its task."""
    return Location("counting.py", files["counting.py"].splitlines().index("seqio.TaskRegistry.add(") + 1)


def with_step(returned: str, before: str = "", steps: str = f"[step, {STEPS[1:]}") -> dict[str, str]:
    """Returns a task whose first preprocessor is a function of the user's own, which begins in line 1."""
    return module((STEPS, steps), before=before + STEP.format(returned))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (STEPS, f"[None, {STEPS[1:]}", "preprocessor 1 of task counting is None, not a function"),
        (FEATURE, "'text'", "output feature inputs of task counting is a str, 'text', not a seqio.Feature"),
        (
            FEATURE,
            "seqio.Feature(seqio.ByteVocabulary)",
            "the vocabulary of output feature inputs of task counting is the class ByteVocabulary, not an object of a "
            "seqio.Vocabulary",
        ),
    ],
)
def test_an_object_of_another_kind_is_named_where_the_task_is_registered(
    find: Find, old: str, new: str, message: str
) -> None:
    files = module((old, new))
    error = find("USR01", files)
    assert error.message == message
    assert error.location == registered(files)


def test_a_class_in_the_place_of_its_object_is_to_be_called(find: Find) -> None:
    assert find("USR01", module((FEATURE, "seqio.Feature(seqio.ByteVocabulary)"))).fix == "call it: ByteVocabulary(...)"


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("metric_fns=[7]", "metric function 1 of task counting is an int, 7, not a function"),
        ("metric_fns='exact'", "metric_fns of task counting is a str, 'exact', not a list of functions"),
    ],
)
def test_a_metric_that_cannot_be_called_is_named_where_the_task_is_registered(
    find: Find, new: str, message: str
) -> None:
    files = module(("metric_fns=[exact]", new))
    error = find("USR01", files, gin=trained(INFER_EVAL))
    assert error.message == message
    assert error.location == registered(files)


def test_keys_that_cannot_be_sorted_are_shown(find: Find) -> None:
    error = find("USR01", module(("'inputs': FEATURE", "b'inputs': FEATURE")))
    assert error.message.endswith("; the keys of output_features are of several types: b'inputs', 'targets'")


def test_a_source_that_returns_no_dataset(find: Find) -> None:
    error = find("USR01", module((READ, "['one two', 'three']")))
    assert (
        error.message
        == "examples in counting.py:5 of task counting returned a list, ['one two', 'three'], not a tf.data.Dataset"
    )
    assert error.location == Location("counting.py", 5)
    assert error.fix == "return a tf.data.Dataset from examples"


def test_a_preprocessor_that_returns_no_dataset(find: Find) -> None:
    error = find("USR01", with_step("None"))
    assert error.message == "step in counting.py:1 of task counting returned None, not a tf.data.Dataset"
    assert error.location == Location("counting.py", 1)


def test_a_preprocessor_of_seqio_that_is_given_something_else(find: Find) -> None:
    error = find("RUN01", with_step("dataset.map(lambda example: 1.0)"))
    assert error.message.endswith("; tokenize is given float32 by step in counting.py:1")
    assert error.location is not None
    assert error.location.file == "counting.py", "the mistake is in the task, not in the config"


def test_a_preprocessor_in_the_wrong_place_shows_what_it_was_given(find: Find) -> None:
    split = "dataset.map(lambda example: {**example, 'inputs': example['inputs'][:3]})"
    error = find("USR01", with_step(split))
    assert error.message.endswith("; step is given inputs: string, targets: string by examples in counting.py:9")


def test_the_arguments_of_a_preprocessor_are_shown(find: Find) -> None:
    split = "dataset.map(lambda example: {**example, 'inputs': example['inputs'][:size]})"
    files = with_step(split, "import functools\n", f"[functools.partial(step, size=3), {STEPS[1:]}")
    text = files["counting.py"].replace("def step(dataset)", "def step(dataset, size)")
    error = find("USR01", {"counting.py": text})
    assert "; step(size=3) is given inputs: string, targets: string by examples" in error.message


def test_a_partial_without_its_call(find: Find) -> None:
    error = find("RUN01", module((STEPS, "[functools.partial]"), before="import functools\n"))
    assert error.message.endswith("; partial is given inputs: string, targets: string by examples in counting.py:6")


def test_a_wrong_rank_names_the_users_function_that_made_it(find: Find) -> None:
    error = find("SEQ40", with_step("dataset.map(lambda example: {**example, 'inputs': [example['inputs']]})"))
    assert error.message.endswith("; step in counting.py:1 leaves inputs: string[1]")


def test_a_comprehension_belongs_to_its_function(find: Find) -> None:
    error = find("USR01", module((READ, "[number + '' for number in (1, 2)]")))
    assert error.message.startswith("examples in counting.py:6 raised TypeError: ")


def test_seqios_preprocessor_that_cannot_take_an_example_shows_what_it_is_given(resolve: Resolve) -> None:
    table = "seqio.Feature(seqio.ByteVocabulary(), rank=2)"
    files = module((READ, f"{READ}.batch(2)"), (FEATURE, table), (STEPS, "[seqio.preprocessors.tokenize]"))
    error = next(finding for finding in resolve(trained(), files).findings if finding.code == "USR01")
    assert "tokenize raised InvalidArgumentError" in error.message
    given = "inputs: string[?], targets: string[?]"
    assert error.message.endswith(f"; tokenize is given {given} by examples in counting.py:5")
