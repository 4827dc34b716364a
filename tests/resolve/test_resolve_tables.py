"""Resolve's facts about data without a mistake: tables of vocabularies, features, sources, rates, metrics."""

from collections.abc import Callable

import pytest
from tasks_in_text import INFER_EVAL, SOURCE, STEPS, Resolve, module

from t5x_harness.findings.rule import FILES, trained


@pytest.fixture
def facts(resolve: Resolve) -> Callable[..., dict[str, str]]:
    """Returns the facts of a train config by name."""
    return lambda gin, files, **options: dict(resolve(gin, files, **options).facts)


def test_equal_vocabularies_are_one_row(facts: Callable[..., dict[str, str]]) -> None:
    found = facts(trained(), FILES)
    assert found["vocabulary"] == (
        "of               kind            ids  extra  pad  eos  unk  file\n"
        "model, counting  ByteVocabulary  259      0    0    1    2  -"
    )
    assert found["embedding"] == "384 rows"


def test_features_with_lengths_cuts_and_padding(facts: Callable[..., dict[str, str]]) -> None:
    found = facts(trained("TASK_FEATURE_LENGTHS = {'inputs': 7, 'targets': 4}") + INFER_EVAL, FILES)
    assert found["features"] == (
        "task and split       feature  type   rank  length   median  longest  truncated  padding  examples read\n"
        "counting train       inputs   int32     1  7             7        8        50%       7%              2\n"
        "counting train       targets  int32     1  4             3        4         0%      25%              2\n"
        "counting validation  inputs   int32     1  7             7        8        50%       7%              2\n"
        "counting validation  targets  int32     1  4             3        4         0%      25%              2\n"
        "counting validation  inputs   int32     1  longest       7        8         0%      12%              2\n"
        "counting validation  targets  int32     1  longest       3        4         0%      25%              2"
    )


def test_packing_gain_of_packed_data_only(facts: Callable[..., dict[str, str]]) -> None:
    assert facts(trained(), FILES)["packing"] == (
        "data        task      examples in a row\n"
        "train       counting                2.0\n"
        "train_eval  counting                2.0"
    )
    unpacked = "train/utils.DatasetConfig.pack = False", "train_eval/utils.DatasetConfig.pack = False"
    assert "packing" not in facts(trained(*unpacked), FILES)


def test_sources_with_their_files_against_the_hosts(facts: Callable[..., dict[str, str]]) -> None:
    read = (
        "seqio.TextLineDataSource({'train': 'part-*.txt', 'validation': 'part-0.txt'}, num_input_examples={'train': 9})"
    )
    steps = f"[lambda d: d.map(lambda line: {{'inputs': line, 'targets': line}}), {STEPS[1:]}"
    texts = {"part-0.txt": "one\ntwo\n", "part-1.txt": "three\n"}
    found = facts(trained(), {**module((SOURCE, read), (STEPS, steps)), **texts}, slice="v3-32")
    assert found["sources"] == (
        "task      split       source              files  examples  cache          read from\n"
        "counting  train       TextLineDataSource      2  9         not cacheable  part-*.txt\n"
        "counting  validation  TextLineDataSource      1  ?         not cacheable  part-0.txt"
    )
    assert found["hosts that read"] == "4"


def test_rates_as_shares_and_metrics_by_name(facts: Callable[..., dict[str, str]]) -> None:
    pair = "{'inputs': FEATURE, 'targets': FEATURE}"
    mixture = f"""
seqio.TaskRegistry.add('other', source={SOURCE}, preprocessors={STEPS}, output_features={pair})
seqio.MixtureRegistry.add('mixed', [('counting', 3.0), ('other', 1.0)])
"""
    found = facts(trained("MIXTURE_OR_TASK_NAME = 'mixed'") + INFER_EVAL, module(after=mixture))
    assert found["rates of mixed train"] == ("task      rate  share\ncounting     3  75.0%\nother        1  25.0%")
    assert "rates of mixed validation" not in found, "they are the same"
    assert found["infer_eval metrics"] == "counting  exact"
