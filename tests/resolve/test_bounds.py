"""Resolve always ends, no matter what a user's source does, and reports what it did not see."""

import functools

import pytest
from tasks_in_text import GENERATOR, READ, SOURCE, Find, Resolve, module

from t5x_harness.findings.rule import evaluated, inferred, trained
from t5x_harness.spec import Outcome, Severity

ROUND = """
def again():
    while True:
        yield {'inputs': 'one two', 'targets': '1 2'}
        yield {'inputs': 'three', 'targets': '3'}


"""
VALIDATION = "utils.DatasetConfig.split = 'validation'"
# Python makes these examples one by one, so a tenth of them shows the same as all 10,000.
FEWER = "from t5x_harness.resolve import samples, sampling\nsamples.EXAMPLES_TO_THE_END = sampling.READ = 1_000\n"


@pytest.fixture
def resolve(resolve: Resolve) -> Resolve:
    """Resolves in separate processes, because these sources leave threads behind, or change how much is read."""
    return functools.partial(resolve, own_process=True)


def test_a_generator_that_goes_round_is_seen_to_be_endless(find: Find) -> None:
    """An endless generator suits training, but not an evaluator that reads its split to the end."""
    files = module((READ, GENERATOR.format(function="again")), before=FEWER + ROUND)
    error = find("SEQ25", files, gin=evaluated(VALIDATION))
    assert error.severity is Severity.ERROR
    assert error.message == (
        "split 'validation' of task counting gives the same 2 examples again and again, 500 times and no end, and "
        "SeqIO's evaluator reads all of it"
    )
    assert error.fix == "let the source end in split 'validation', or bind seqio.Evaluator.num_examples"


def test_a_limit_for_the_evaluator_is_an_end(resolve: Resolve) -> None:
    files = module((READ, GENERATOR.format(function="again")), before=FEWER + ROUND)
    result = resolve(evaluated(VALIDATION, "seqio.Evaluator.num_examples = 8"), files)
    assert result.outcome is Outcome.PASSED
    assert "SEQ25" not in {f.code for f in result.findings}


def test_endless_training_data_is_fine(resolve: Resolve) -> None:
    result = resolve(trained(), module((READ, f"{READ}.repeat()")))
    assert result.outcome is Outcome.PASSED
    assert {f.code for f in result.findings} == set()


def test_inference_from_endless_data_never_ends(find: Find) -> None:
    error = find("SEQ25", module((READ, f"{READ}.repeat()")), gin=inferred(VALIDATION))
    assert error.message == "split 'validation' of task counting has no end, and inference reads all of it"
    assert error.fix == "let the source end in split 'validation'"


def test_a_long_generator_may_end_or_not(resolve: Resolve) -> None:
    steps = "for i in range(2_000):\n        yield {'inputs': f'{i}', 'targets': '1'}"
    long = f"{FEWER}def again():\n    {steps}\n\n\n"
    result = resolve(evaluated(VALIDATION), module((READ, GENERATOR.format(function="again")), before=long))
    assert result.outcome is Outcome.PASSED
    assert "whether counting validation ends: 1,000 examples of its source came" in result.not_checked


def test_a_generator_beyond_its_own_count_is_warned_of(find: Find) -> None:
    steps = "for i in range(2_000):\n        yield {'inputs': f'{i}', 'targets': '1'}"
    long = f"{FEWER}def again():\n    {steps}\n\n\n"
    files = module(
        (READ, GENERATOR.format(function="again")),
        ("'validation'))", "'validation'), num_input_examples={'validation': 100})"),
        before=long,
    )
    warning = find("SEQ25", files, gin=evaluated(VALIDATION))
    assert warning.severity is Severity.WARNING
    assert "goes on beyond its num_input_examples, 100: 1,000 came and no end" in warning.message


def test_a_filter_that_drops_an_endless_source_comes_to_an_end(resolve: Resolve) -> None:
    steps = "[lambda dataset: dataset.filter(lambda example: False), seqio.preprocessors.tokenize"
    files = module((READ, f"{READ}.repeat()"), ("[seqio.preprocessors.tokenize", steps))
    error = next(f for f in resolve(trained(), files).findings if f.code == "SEQ36")
    assert error.message == "task counting has no example in split 'train' among the first 10,000 of its source"


HURRIED = "from t5x_harness.resolve import sampling\nsampling.SECONDS = 4.0\n"


def test_a_source_that_waits_does_not_hold_up_resolve(resolve: Resolve) -> None:
    slow = f"""{HURRIED}import threading


def again():
    yield {{'inputs': 'one two', 'targets': '1 2'}}
    threading.Event().wait()


"""
    result = resolve(trained(), module((READ, GENERATOR.format(function="again")), before=slow))
    assert result.outcome is Outcome.PASSED
    # Reading the first split may include the time that TensorFlow needs to start.
    assert "more examples of counting validation: 1 came within 4 s" in result.not_checked
    assert result.exercised >= 1


def test_a_source_that_gives_nothing_proves_nothing(resolve: Resolve) -> None:
    slow = f"{HURRIED}import threading\n\n\ndef again():\n    threading.Event().wait()\n    yield\n\n\n"
    result = resolve(trained(), module((READ, GENERATOR.format(function="again")), before=slow))
    assert [f.code for f in result.errors] == ["RUN02"]
    assert "more examples of counting train: none came within 4 s" in result.not_checked


def test_prints_and_threads_of_the_source_do_not_matter(resolve: Resolve) -> None:
    busy = """import queue
import threading


def again():
    print('{"value": "not a reply"}', flush=True)
    rows = queue.Queue(2)

    def fill():
        for i in range(3):
            rows.put({'inputs': f'{i}', 'targets': '1'})
        rows.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (row := rows.get()) is not None:
        yield row


"""
    result = resolve(trained(), module((READ, GENERATOR.format(function="again")), before=busy))
    assert result.outcome is Outcome.PASSED
    assert result.exercised == 6


@pytest.mark.parametrize("path", ["gs://nobodys-bucket/data-*.txt", "/gcs/nobodys-bucket/data-*.txt"])
def test_data_in_a_bucket_is_said_to_be_out_of_reach(resolve: Resolve, path: str) -> None:
    files = module((SOURCE, f"seqio.TextLineDataSource({{'train': '{path}', 'validation': '{path}'}})"))
    result = resolve(trained(), files)
    assert f"the examples of counting train: {path} cannot be read here" in result.not_checked
    assert [f.code for f in result.errors] == ["RUN09"]  # RUN09 asks for rows
