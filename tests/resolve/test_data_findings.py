"""What resolve says of mistakes in the data: the words, the values, and the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tasks_in_text import INFER_EVAL, READ, SOURCE, STEPS, module

from t5x_harness.resolve import examples
from t5x_harness.spec import Finding, Location, Outcome, Severity, StageResult

Resolve = Callable[..., StageResult]

CUT = "def cut(dataset, sequence_length):\n    return dataset\n\n\n"
NEEDY = module((STEPS, f"[cut, {STEPS[1:]}"), ("seqio.TaskRegistry", f"{CUT}seqio.TaskRegistry"))


def of(result: StageResult, code: str) -> Finding:
    (finding,) = (f for f in result.findings if f.code == code)
    return finding


def registered(files: dict[str, str]) -> Location:
    """Where the module registers its task."""
    return Location("counting.py", files["counting.py"].splitlines().index("seqio.TaskRegistry.add(") + 1)


def test_a_cache_that_is_asked_for_and_missing(resolve: Resolve) -> None:
    steps = "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]"
    result = resolve(examples.trained("USE_CACHED_TASKS = True"), module((STEPS, steps)))
    error = of(result, "SEQ01")
    assert error.message == (
        "use_cached is True, and the examples of task counting are not cached: no cache folder is set"
    )
    assert error.binding == "USE_CACHED_TASKS"
    assert error.fix == (
        "set it to False, or cache the task (seqio_cache_tasks) and name the folder where the task is registered: "
        "seqio.add_global_cache_dirs(['FOLDER'])"
    )
    assert result.exercised == 4, "what would have been cached is looked at all the same"


def test_the_folders_that_were_searched_for_a_cache_are_named(resolve: Resolve) -> None:
    steps = "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]"
    files = module((STEPS, steps), after="seqio.add_global_cache_dirs(['nowhere'])\n")
    assert (
        "none of nowhere has them" in of(resolve(examples.trained("USE_CACHED_TASKS = True"), files), "SEQ01").message
    )


def test_a_cache_in_a_bucket_is_not_judged(resolve: Resolve) -> None:
    steps = "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]"
    files = module((STEPS, steps), after="seqio.add_global_cache_dirs(['gs://nobodys-bucket/cache'])\n")
    result = resolve(examples.trained("USE_CACHED_TASKS = True"), files)
    assert result.outcome is Outcome.PASSED
    assert any("whether counting is cached in gs://nobodys-bucket/cache" in doubt for doubt in result.not_checked)
    assert [(c.after, c.why) for c in result.changes] == [("preprocessed as they are read", "standin")]


def test_a_task_that_cannot_be_cached_is_a_warning_and_told_once(resolve: Resolve) -> None:
    result = resolve(examples.trained("USE_CACHED_TASKS = True"), examples.FILES)
    warning = of(result, "SEQ02")
    assert result.outcome is Outcome.PASSED
    assert warning.severity is Severity.WARNING
    assert "task counting has no CacheDatasetPlaceholder among its preprocessors" in warning.message


def test_the_feature_that_is_missing_is_named_where_the_task_is_registered(resolve: Resolve) -> None:
    files = module(("'inputs': ['one two'", "'source': ['one two'"))
    error = of(resolve(examples.trained(), files), "SEQ06")
    assert "the preprocessors leave no feature inputs" in error.message
    assert error.location == registered(files)


def test_vocabularies_of_a_mixture_are_told_apart(resolve: Resolve) -> None:
    mixture = f"""
OTHER = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))

seqio.TaskRegistry.add(
    'other', source={SOURCE}, preprocessors={STEPS}, output_features={{'inputs': FEATURE, 'targets': OTHER}}
)
seqio.MixtureRegistry.add('mixed', ['counting', 'other'], default_rate=1.0)
"""
    error = of(resolve(examples.trained("MIXTURE_OR_TASK_NAME = 'mixed'"), module(after=mixture)), "SEQ08")
    assert error.message == (
        "the tasks of mixture mixed do not agree on feature targets: ByteVocabulary (259 ids), int32, in counting, and "
        "ByteVocabulary (359 ids, 100 extra), int32, in other"
    )


def test_features_of_a_mixture_that_differ_are_named(resolve: Resolve) -> None:
    mixture = f"""
seqio.TaskRegistry.add('other', source={SOURCE}, preprocessors={STEPS}, output_features={{'targets': FEATURE}})
seqio.MixtureRegistry.add('mixed', ['counting', 'other'], default_rate=1.0)
"""
    error = of(resolve(examples.trained("MIXTURE_OR_TASK_NAME = 'mixed'"), module(after=mixture)), "SEQ07")
    assert error.message == (
        "the tasks of mixture mixed do not all have the same output features: those of counting are "
        "('inputs', 'targets')"
    )


@pytest.mark.parametrize(
    ("rate", "severity", "says"),
    [
        ("0.0", Severity.WARNING, "task other has the rate 0 in mixture mixed: no example of it is ever read"),
        ("-1.0", Severity.ERROR, "task other has the rate -1 in mixture mixed, which must be a positive number"),
        (
            "seqio.mixing_rate_num_examples",
            Severity.ERROR,
            "the rate of task other in mixture mixed cannot be computed: its source does not say num_input_examples, "
            "and it is not cached",
        ),
        (
            "lambda task: 1 / 0",
            Severity.ERROR,
            "the rate of task other in mixture mixed cannot be computed: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_rate_that_no_task_can_have(resolve: Resolve, rate: str, severity: Severity, says: str) -> None:
    pair = "{'inputs': FEATURE, 'targets': FEATURE}"
    mixture = f"""
seqio.TaskRegistry.add('other', source={SOURCE}, preprocessors={STEPS}, output_features={pair})
seqio.MixtureRegistry.add('mixed', [('counting', 1.0), ('other', {rate})])
"""
    finding = of(resolve(examples.trained("MIXTURE_OR_TASK_NAME = 'mixed'"), module(after=mixture)), "SEQ17")
    assert (finding.severity, finding.message) == (severity, says)


def test_lengths_that_only_an_evaluator_finds_out(resolve: Resolve) -> None:
    error = of(
        resolve(examples.trained("train/utils.DatasetConfig.task_feature_lengths = None"), examples.FILES), "SEQ15"
    )
    assert error.message.startswith("task_feature_lengths of the train data is None: only evaluation by predictions")


def test_a_preprocessor_that_needs_lengths_in_a_train_runs_evaluation(resolve: Resolve) -> None:
    error = of(resolve(examples.trained() + INFER_EVAL, NEEDY), "SEQ30")
    assert error.message == "task_feature_lengths is None, and preprocessor cut of task counting needs the lengths"
    assert error.fix == "set infer_eval/utils.DatasetConfig.task_feature_lengths = %TASK_FEATURE_LENGTHS"


def test_a_task_that_nobody_evaluates_needs_no_lengths(resolve: Resolve) -> None:
    files = {"counting.py": NEEDY["counting.py"].replace("metric_fns=[exact]", "metric_fns=[]")}
    assert "SEQ30" not in {f.code for f in resolve(examples.trained() + INFER_EVAL, files).findings}


def test_a_source_with_less_than_it_says(resolve: Resolve) -> None:
    files = module(("'validation'))", "'validation'), num_input_examples={'train': 1000, 'validation': 2})"))
    warning = of(resolve(examples.trained(), files), "SEQ36")
    assert warning.severity is Severity.WARNING
    assert warning.message == (
        "split 'train' of task counting says to have 1,000 examples (num_input_examples), and its source has 2"
    )


@pytest.mark.parametrize(
    ("declared", "severity"), [("", Severity.WARNING), (", num_input_examples={'train': 2}", Severity.NOTE)]
)
def test_less_than_a_batch_is_a_note_where_the_source_counts_its_examples(
    resolve: Resolve, declared: str, severity: Severity
) -> None:
    files = module(("'validation'))", f"'validation'){declared})"))
    finding = of(resolve(examples.trained(), files), "SEQ36")
    assert finding.severity is severity
    assert finding.message == (
        "split 'train' of task counting has 2 examples in all, less than one batch of 128: every step trains on the "
        "same ones"
    )


def test_preprocessors_that_join_examples_are_no_loss(resolve: Resolve) -> None:
    steps = "[seqio.preprocessors.tokenize, lambda dataset: dataset.take(150)"
    files = module(
        (READ, f"{READ}.repeat(200)"),
        ("[seqio.preprocessors.tokenize", steps),
        ("'validation'))", "'validation'), num_input_examples={'train': 400, 'validation': 400})"),
    )
    assert "SEQ36" not in {f.code for f in resolve(examples.trained(), files).findings}


def test_the_piece_that_a_sentinel_overwrites_is_named(resolve: Resolve) -> None:
    from t5x_harness.resolve.rules.sentinels import OverwrittenPieces

    warning = of(resolve(OverwrittenPieces.bad.gin, OverwrittenPieces.bad.files), "SEQ10")
    assert warning.message.startswith("the examples of task counting are corrupted spans with ")
    assert "and its vocabulary has no extra ids: the sentinel with the id 511 is also the piece '" in warning.message
    assert warning.fix == "give the vocabulary of the task, and the model's, at least 100 extra_ids"


def test_the_highest_ids_in_ordinary_text_are_no_sentinels(resolve: Resolve) -> None:
    from t5x_harness.resolve.rules.sentinels import OverwrittenPieces

    plain = OverwrittenPieces.bad.files["counting.py"].replace(
        "span_corruption.span_corruption",
        "lambda d: d.map(lambda e: {'inputs': e['targets'], 'targets': e['targets']})",
    )
    result = resolve(OverwrittenPieces.bad.gin, {"counting.py": plain})
    assert "SEQ10" not in {f.code for f in result.findings}


def test_corrupted_targets_without_an_end_are_seen_although_their_task_cuts_them(resolve: Resolve) -> None:
    from t5x_harness.resolve.rules.sentinels import OverwrittenPieces

    endless = OverwrittenPieces.good.files["counting.py"].replace(", seqio.preprocessors.append_eos_after_trim", "")
    result = resolve(OverwrittenPieces.good.gin, {"counting.py": endless})
    assert "no sampled target of counting ends with the end-of-sequence id 1" in of(result, "SEQ14").message


def test_the_vocabulary_of_a_language_models_task_is_compared_too(resolve: Resolve) -> None:
    files = module(
        ("{'inputs': FEATURE, 'targets': FEATURE}", "{'targets': FEATURE}"),
        ("FEATURE = seqio.Feature(seqio.ByteVocabulary())", "FEATURE = seqio.Feature(seqio.ByteVocabulary(7))"),
    )
    assert (
        "feature targets of task counting uses ByteVocabulary (266 ids, 7 extra)"
        in of(resolve(examples.trained(), files), "SEQ09").message
    )


def test_vocabularies_that_the_config_does_not_have_compared_are_a_warning(resolve: Resolve) -> None:
    files = module(
        ("FEATURE = seqio.Feature(seqio.ByteVocabulary())", "FEATURE = seqio.Feature(seqio.ByteVocabulary(7))")
    )
    result = resolve(examples.trained("train_script.train.verify_matching_vocabs_fn = None"), files)
    assert {f.severity for f in result.findings if f.code == "SEQ09"} == {Severity.WARNING}


def test_a_module_that_registers_twice_is_told_with_its_line(resolve: Resolve) -> None:
    files = {"copy_of.py": examples.TASK, **examples.FILES}
    error = of(resolve(examples.trained("MIXTURE_OR_TASK_MODULE = 'copy_of'"), files), "SEQ05")
    assert error.message == "counting is registered twice: its module is imported under two names"
    assert error.location is not None
    assert error.location.file == "copy_of.py"
