"""Resolve's findings about mistakes in the data: the words, the values, and the line."""

import pytest
from tasks_in_text import INFER_EVAL, READ, SOURCE, STEPS, Find, Resolve, module, of

from t5x_harness.findings.rule import FILES, TASK, trained
from t5x_harness.resolve.rules.sentinels import overwritten_pieces
from t5x_harness.spec import Location, Outcome, Severity

CUT = "def cut(dataset, sequence_length):\n    return dataset\n\n\n"
CACHED = trained("USE_CACHED_TASKS = True")
CACHEABLE = (STEPS, "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]")
MIXED = trained("MIXTURE_OR_TASK_NAME = 'mixed'")
OTHER_BYTES = module(("seqio.Feature(seqio.ByteVocabulary())", "seqio.Feature(seqio.ByteVocabulary(7))"))
WITHOUT_VALIDATION = module(("splits=('train', 'validation')", "splits=('train',)"))
NEEDY = module((STEPS, f"[cut, {STEPS[1:]}"), ("seqio.TaskRegistry", f"{CUT}seqio.TaskRegistry"))


def in_bucket(name: str, rows: int) -> str:
    """Returns a train config whose model has a vocabulary in a bucket."""
    return trained(
        "VOCABULARY = @seqio.SentencePieceVocabulary()",
        f"seqio.SentencePieceVocabulary.sentencepiece_model_file = 'gs://ours/{name}.model'",
        f"network.T5Config.vocab_size = {rows}",
    )


def registered(files: dict[str, str]) -> Location:
    """Returns the line where the module registers its task."""
    return Location("counting.py", files["counting.py"].splitlines().index("seqio.TaskRegistry.add(") + 1)


def test_a_cache_that_is_asked_for_and_missing(resolve: Resolve) -> None:
    result = resolve(CACHED, module(CACHEABLE))
    error = of(result, "SEQ01")
    assert error.message == (
        "use_cached is True, and the examples of task counting are not cached: no cache folder is set"
    )
    assert error.binding == "USE_CACHED_TASKS"
    assert error.fix == (
        "set USE_CACHED_TASKS = False, or cache the task (t5x-harness cache, seqio_cache_tasks) and name the folder "
        "where the task is registered: seqio.add_global_cache_dirs(['FOLDER'])"
    )
    assert result.exercised == 4, "what would have been cached is looked at all the same"


def test_the_folders_that_were_searched_for_a_cache_are_named(find: Find) -> None:
    files = module(CACHEABLE, after="seqio.add_global_cache_dirs(['nowhere'])\n")
    assert "none of nowhere has them" in find("SEQ01", files, gin=CACHED).message


def test_a_cache_in_a_bucket_is_not_judged(resolve: Resolve) -> None:
    files = module(CACHEABLE, after="seqio.add_global_cache_dirs(['gs://nobodys-bucket/cache'])\n")
    result = resolve(CACHED, files)
    assert result.outcome is Outcome.PASSED
    assert any("whether counting is cached in gs://nobodys-bucket/cache" in doubt for doubt in result.not_checked)
    assert [c.after for c in result.changes if c.why == "standin"] == ["preprocessed as they are read"]


def test_a_task_that_cannot_be_cached_is_a_warning_and_reported_once(resolve: Resolve) -> None:
    result = resolve(CACHED, FILES)
    warning = of(result, "SEQ02")
    assert result.outcome is Outcome.PASSED
    assert warning.severity is Severity.WARNING
    assert "task counting has no CacheDatasetPlaceholder among its preprocessors" in warning.message
    assert warning.fix.startswith("set USE_CACHED_TASKS = False if that is meant, or ")


def test_the_feature_that_is_missing_is_named_where_the_task_is_registered(find: Find) -> None:
    files = module(("'inputs': ['one two'", "'source': ['one two'"))
    error = find("SEQ06", files)
    assert "the preprocessors leave no feature inputs" in error.message
    assert error.message.endswith("; they leave: source, targets, targets_pretokenized")
    assert error.location == registered(files)


def test_a_split_that_no_task_has_leaves_nothing_to_evaluate(resolve: Resolve) -> None:
    split = "train_eval/utils.DatasetConfig.split = 'dev'"
    ours, theirs = (
        next(f for f in resolve(gin, files).findings if f.code == "SEQ18")
        for gin, files in (
            (trained(INFER_EVAL.replace("'validation'", "'dev'"), split), FILES),
            (trained(), WITHOUT_VALIDATION),
        )
    )
    assert ours.severity is Severity.ERROR
    assert ours.message == (
        "task counting has no split 'dev' (it has: train, validation): T5X evaluates nothing without a word"
    )
    assert (ours.fix or "").endswith("or set train.train_eval_dataset_cfg = None to train without it")
    assert theirs.severity is Severity.WARNING, "T5X's own config names the split"


def test_names_of_splits_may_be_of_any_type(resolve: Resolve) -> None:
    gin = trained(INFER_EVAL, "train_script.train.train_eval_dataset_cfg = None")
    warning = of(resolve(gin, module(("('train', 'validation')", "(None, 'train')"))), "SEQ18")
    assert "task counting has no split 'validation' (it has: None, train)" in warning.message


def test_inference_during_training_on_a_split_that_no_task_has(resolve: Resolve) -> None:
    gin = trained(INFER_EVAL, "train_script.train.train_eval_dataset_cfg = None")
    result = resolve(gin, WITHOUT_VALIDATION)
    assert of(result, "SEQ18").severity is Severity.ERROR
    mixed = f"""
seqio.TaskRegistry.add(
    'other',
    source=seqio.FunctionDataSource(examples, splits=('train',)),
    preprocessors={STEPS},
    output_features={{'inputs': FEATURE, 'targets': FEATURE}},
    metric_fns=[exact],
)
seqio.MixtureRegistry.add('mixed', ['counting', 'other'], default_rate=1.0)
"""
    result = resolve(trained("MIXTURE_OR_TASK_NAME = 'mixed'", INFER_EVAL), module(after=mixed))
    of_one, _ = (f for f in result.findings if f.code == "SEQ18")
    assert of_one.severity is Severity.WARNING, "the other task has it"
    assert "task other has no split 'validation' (it has: train): T5X skips it" in of_one.message


def test_different_vocabularies_in_a_mixture_are_described(find: Find) -> None:
    mixture = f"""
OTHER = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))

seqio.TaskRegistry.add(
    'other', source={SOURCE}, preprocessors={STEPS}, output_features={{'inputs': FEATURE, 'targets': OTHER}}
)
seqio.MixtureRegistry.add('mixed', ['counting', 'other'], default_rate=1.0)
"""
    error = find("SEQ08", module(after=mixture), gin=MIXED)
    assert error.message == (
        "the tasks of mixture mixed do not agree on feature targets: ByteVocabulary (259 ids), int32, in counting, and "
        "ByteVocabulary (359 ids, 100 extra), int32, in other"
    )


def test_features_of_a_mixture_that_differ_are_named(find: Find) -> None:
    mixture = f"""
BOTH = {{'inputs': FEATURE, 'targets': FEATURE}}
seqio.TaskRegistry.add('same', source={SOURCE}, preprocessors={STEPS}, output_features=BOTH)
seqio.TaskRegistry.add('other', source={SOURCE}, preprocessors={STEPS}, output_features={{'targets': FEATURE}})
seqio.MixtureRegistry.add('mixed', ['counting', 'same', 'other'], default_rate=1.0)
"""
    error = find("SEQ07", module(after=mixture), gin=MIXED)
    assert error.message == (
        "the tasks of mixture mixed do not all have the same output features: those of counting are "
        "('inputs', 'targets'), those of other ('targets',)"
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
        (
            "lambda task: None",
            Severity.ERROR,
            "the rate of task other in mixture mixed cannot be computed: TypeError: float() argument must be a string "
            "or a real number, not 'NoneType'",
        ),
    ],
)
def test_a_rate_that_no_task_can_have(find: Find, rate: str, severity: Severity, says: str) -> None:
    pair = "{'inputs': FEATURE, 'targets': FEATURE}"
    mixture = f"""
seqio.TaskRegistry.add('other', source={SOURCE}, preprocessors={STEPS}, output_features={pair})
seqio.MixtureRegistry.add('mixed', [('counting', 1.0), ('other', {rate})])
"""
    finding = find("SEQ17", module(after=mixture), gin=MIXED)
    assert (finding.severity, finding.message) == (severity, says)


def test_a_mixture_whose_rates_are_all_zero(find: Find) -> None:
    mixture = "\nseqio.MixtureRegistry.add('mixed', [('counting', 0.0)])\n"
    finding = find("SEQ17", module(after=mixture), gin=MIXED)
    assert (finding.severity, finding.message) == (
        Severity.ERROR,
        "all tasks of mixture mixed have the rate 0: it has no example",
    )


def test_a_preprocessor_that_needs_lengths_in_a_train_runs_evaluation(find: Find) -> None:
    error = find("SEQ30", NEEDY, gin=trained() + INFER_EVAL)
    assert error.message == "task_feature_lengths is None, and preprocessor cut of task counting needs the lengths"
    assert error.fix == "set infer_eval/utils.DatasetConfig.task_feature_lengths = %TASK_FEATURE_LENGTHS"


def test_a_task_that_is_not_evaluated_needs_no_lengths(resolve: Resolve) -> None:
    files = {"counting.py": NEEDY["counting.py"].replace("metric_fns=[exact]", "metric_fns=[]")}
    assert "SEQ30" not in {f.code for f in resolve(trained() + INFER_EVAL, files).findings}


def test_a_source_with_less_than_it_says(find: Find) -> None:
    files = module(("'validation'))", "'validation'), num_input_examples={'train': 1000, 'validation': 2})"))
    warning = find("SEQ36", files)
    assert warning.severity is Severity.WARNING
    assert warning.message == (
        "split 'train' of task counting says to have 1,000 examples (num_input_examples), and its source has 2"
    )


@pytest.mark.parametrize(
    ("declared", "severity"), [("", Severity.WARNING), (", num_input_examples={'train': 2}", Severity.NOTE)]
)
def test_less_than_a_batch_is_a_note_where_the_source_counts_its_examples(
    find: Find, declared: str, severity: Severity
) -> None:
    files = module(("'validation'))", f"'validation'){declared})"))
    finding = find("SEQ36", files)
    assert finding.severity is severity
    assert finding.message == (
        "split 'train' of task counting has 2 examples in all, less than one batch of 128: every step trains on the "
        "same ones"
    )


def test_preprocessors_that_join_examples_lose_nothing(resolve: Resolve) -> None:
    steps = "[seqio.preprocessors.tokenize, lambda dataset: dataset.take(150)"
    files = module(
        (READ, f"{READ}.repeat(200)"),
        ("[seqio.preprocessors.tokenize", steps),
        ("'validation'))", "'validation'), num_input_examples={'train': 400, 'validation': 400})"),
    )
    assert "SEQ36" not in {f.code for f in resolve(trained(), files).findings}


def test_the_piece_that_a_sentinel_overwrites_is_named(find: Find) -> None:
    warning = find("SEQ10", overwritten_pieces.bad.files, gin=overwritten_pieces.bad.gin)
    assert warning.message.startswith("the examples of task counting are corrupted spans with ")
    assert "and its vocabulary has no extra ids: the sentinel with the id 511 is also the piece '" in warning.message
    assert warning.fix == "give the vocabulary of the task, and the model's, at least 100 extra_ids"


@pytest.mark.parametrize("length", [32, 512])
def test_bytes_that_sentinels_overwrite(resolve: Resolve, length: int) -> None:
    """ByT5 takes a few sentinels from the bytes that UTF-8 does not use; any further ones are bytes of text."""
    text = next(iter(overwritten_pieces.bad.files.values()))
    text = text.partition("\n\ndef pieces")[0].replace("long. It", f"{'and very ' * 40} long. It")
    sentence_piece = "seqio.SentencePieceVocabulary(vocabularies.SENTENCEPIECE_MODEL, extra_ids=0)"
    files = {"counting.py": text.replace(sentence_piece, "seqio.ByteVocabulary()")}
    result = resolve(trained(f"TASK_FEATURE_LENGTHS = {{'inputs': {length}, 'targets': {length}}}"), files)
    found = [f for f in result.findings if f.code == "SEQ10"]
    if length == 32:
        assert not found
    else:
        assert "the sentinel with the id 247 is also the piece '0xF4'" in found[0].message


def test_the_highest_ids_in_ordinary_text_are_not_sentinels(resolve: Resolve) -> None:
    plain = overwritten_pieces.bad.files["counting.py"].replace(
        "span_corruption.span_corruption",
        "lambda d: d.map(lambda e: {'inputs': e['targets'], 'targets': e['targets']})",
    )
    result = resolve(overwritten_pieces.bad.gin, {"counting.py": plain})
    assert "SEQ10" not in {f.code for f in result.findings}


def test_corrupted_targets_without_an_end_are_seen_although_their_task_cuts_them(resolve: Resolve) -> None:
    endless = overwritten_pieces.good.files["counting.py"].replace(", seqio.preprocessors.append_eos_after_trim", "")
    result = resolve(overwritten_pieces.good.gin, {"counting.py": endless})
    assert "no sampled target of counting ends with the end-of-sequence id 1" in of(result, "SEQ14").message


@pytest.mark.parametrize("at", ["the task", "the binding", "neither"])
def test_a_comment_at_the_task_or_at_the_binding_of_its_name_silences(resolve: Resolve, at: str) -> None:
    twice = ("append_eos]", "append_eos, seqio.preprocessors.append_eos]")
    comment, task, name = (
        "  # t5x-harness: ignore[SEQ41]",
        "seqio.TaskRegistry.add(",
        "MIXTURE_OR_TASK_NAME = 'counting'",
    )
    files = module(twice, (task, task + comment * (at == "the task")))
    result = resolve(trained().replace(name, name + comment * (at == "the binding")), files)
    shown, silenced = ([f for f in found if f.code == "SEQ41"] for found in (result.findings, result.silenced))
    assert (len(shown), len(silenced)) == ((1, 0) if at == "neither" else (0, 1))


def test_the_vocabulary_of_a_language_models_task_is_compared_too(find: Find) -> None:
    files = module(
        ("{'inputs': FEATURE, 'targets': FEATURE}", "{'targets': FEATURE}"),
        ("FEATURE = seqio.Feature(seqio.ByteVocabulary())", "FEATURE = seqio.Feature(seqio.ByteVocabulary(7))"),
    )
    assert "of task counting (counting.py:15) uses ByteVocabulary (266 ids, 7 extra)" in find("SEQ09", files).message


def test_vocabularies_that_the_config_does_not_have_compared_are_a_warning(resolve: Resolve) -> None:
    result = resolve(trained("train_script.train.verify_matching_vocabs_fn = None"), OTHER_BYTES)
    assert {f.severity for f in result.findings if f.code == "SEQ09"} == {Severity.WARNING}


def test_a_path_in_the_place_of_a_vocabulary_is_named_with_its_line(find: Find) -> None:
    """T5X itself compares the path with the task's vocabulary, and reports only that they do not match."""
    gin = trained("VOCABULARY = 'gs://bucket/sentencepiece.model'")
    error = find("SEQ09", FILES, gin=gin)
    assert error.message == (
        "VOCABULARY = 'gs://bucket/sentencepiece.model' is not a vocabulary: the model needs one of SeqIO, equal to "
        "the task's"
    )
    assert error.location == Location("run.gin", len(gin.splitlines()))


def test_a_module_that_registers_twice_is_reported_with_its_line(find: Find) -> None:
    files = {"copy_of.py": TASK, **FILES}
    error = find("SEQ05", files, "MIXTURE_OR_TASK_MODULE = 'copy_of'")
    assert error.message == "counting is registered twice: at counting.py:15, and again at copy_of.py:15"
    assert error.location == Location("copy_of.py", 15)


def test_two_of_one_name_in_a_module_are_reported_with_both_lines(find: Find) -> None:
    mixture = "seqio.MixtureRegistry.add('mix', ['counting'], default_rate=1)\n"
    files = module(after=mixture + mixture)
    error = find("SEQ05", files)
    lines = [n for n, line in enumerate(files["counting.py"].splitlines(), 1) if line == mixture.strip()]
    assert error.message == f"mix is registered twice: at counting.py:{lines[0]}, and again at counting.py:{lines[1]}"
    assert error.location == Location("counting.py", lines[1])
    assert error.fix == "register it once, or give the second one a name of its own"


def test_a_module_under_two_names_is_reported_with_both_names(find: Find) -> None:
    files = {
        "counting.py": "",
        "project/counted.py": TASK,
        "both_ways.py": "import sys\nimport project.counted\nsys.path.append('project')\nimport counted\n",
    }
    error = find("SEQ05", files, "import both_ways")
    assert error.message == (
        "counting is registered twice: project/counted.py is imported under two names, project.counted and counted"
    )
    assert error.fix == "import it under one name only, project.counted or counted"


def test_a_module_that_the_users_module_needs_is_reported_at_its_import(find: Find) -> None:
    files = module(("import seqio\n", "import seqio\nimport scorer_of_ours.fast\n"))
    error = find("GIN15", files)
    assert error.message == "counting.py imports scorer_of_ours, which is not there (run.gin:9 imports counting.py)"
    assert error.location == Location("counting.py", 2)
    assert "python -m pip install scorer_of_ours" in (error.fix or "")
    assert "python_path" in (error.fix or "")


def test_operations_that_pack_are_installed(find: Find) -> None:
    error = find("SEQ29", FILES, "train/utils.DatasetConfig.use_custom_packing_ops = True")
    assert error.message == "train data is packed by the operations of tensor2tensor, which is not installed"
    assert error.binding == "train/utils.DatasetConfig.use_custom_packing_ops"
    assert error.fix == "set train/utils.DatasetConfig.use_custom_packing_ops = False"


def test_a_task_module_that_is_misspelt_gets_the_closest(find: Find) -> None:
    files = {"project/__init__.py": "", "project/tasks.py": "", **FILES}
    error = find("GIN15", files, "MIXTURE_OR_TASK_MODULE = 'project.taks'")
    assert error.message == "module project.taks cannot be imported"
    assert error.binding == "MIXTURE_OR_TASK_MODULE"
    assert error.fix == "write project.tasks"


def test_a_prefix_language_model_takes_inputs(resolve: Resolve) -> None:
    """If inputs have a length, SeqIO's converter for decoders is the one for prefix language models."""
    own = f"""{TASK}

from flax import linen as nn


class Decoder(nn.Module):
    def __call__(self, decoder_input_tokens, decoder_target_tokens, **options):
        return decoder_input_tokens
"""
    model = (
        "from t5x import models",
        "MODEL = @models.DecoderOnlyModel()",
        "models.DecoderOnlyModel.module = @counting.Decoder()",
        "models.DecoderOnlyModel.vocabulary = %VOCABULARY",
        "models.DecoderOnlyModel.optimizer_def = %OPTIMIZER",
    )
    result = resolve(trained(*model), {"counting.py": own})
    assert result.outcome is Outcome.PASSED, result.findings
    lengths = "TASK_FEATURE_LENGTHS = {'inputs': 32, 'target': 32}"
    missing, further = (
        f for f in resolve(trained(*model, lengths), {"counting.py": own}).findings if f.code == "SEQ15"
    )
    assert missing.message.endswith("has no length for targets; the model (DecoderOnlyModel) takes inputs, targets")
    assert further.message.endswith("also has target; the model (DecoderOnlyModel) takes inputs, targets")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("TASK_FEATURE_LENGTHS = {'inputs': 32.0, 'targets': 32}", ", and that of inputs is 32.0, a float: only whole"),
        (
            "TASK_FEATURE_LENGTHS = {'inputs': 0, 'targets': 32}",
            "the model's encoder_input_tokens have no position",
        ),
        (
            "train/utils.DatasetConfig.task_feature_lengths = None",
            "task_feature_lengths of the train data is None: only evaluation by predictions",
        ),
    ],
)
def test_lengths_that_are_none(find: Find, line: str, says: str) -> None:
    error = find("SEQ15", FILES, line)
    assert says in error.message
    assert error.binding == line.partition(" = ")[0]


def test_a_type_that_only_the_declaration_has(find: Find) -> None:
    files = module(("seqio.Feature(seqio.ByteVocabulary())", "seqio.Feature(seqio.ByteVocabulary(), dtype=tf.float32)"))
    error = find("SEQ37", files)
    assert error.message == "feature inputs is int32 after preprocessing, and its seqio.Feature declares float32"
    assert error.fix == "declare what it is: seqio.Feature(dtype=tf.int32), the default"


def test_vocabularies_that_cannot_be_read_are_reported_once_and_without_a_claim(resolve: Resolve) -> None:
    files = module(("seqio.ByteVocabulary()", "seqio.SentencePieceVocabulary('gs://ours/two_32k.model')"))
    result = resolve(in_bucket("one_32k", 32_000), files)
    assert of(result, "SEQ09").message == (
        "feature inputs of task counting (counting.py:15) and 1 more use SentencePieceVocabulary (32000 ids, "
        "gs://ours/two_32k.model), the model SentencePieceVocabulary (32000 ids, gs://ours/one_32k.model); their files "
        "cannot be read here, so whether their pieces are the same is not known"
    )
    assert any("how many ids gs://ours/two_32k.model has: 32000 is a guess" in doubt for doubt in result.not_checked)


def test_vocabularies_of_two_kinds_are_different_whatever_their_files_hold(find: Find) -> None:
    assert find("SEQ09", module(), gin=in_bucket("one_32k", 32_000)).message == (
        "feature inputs of task counting (counting.py:15) and 1 more use ByteVocabulary (259 ids), the model "
        "SentencePieceVocabulary (32000 ids, gs://ours/one_32k.model)"
    )


def test_an_empty_split_that_the_user_did_not_choose_is_reported_at_the_task(find: Find) -> None:
    files = module((READ, f"{READ}.repeat(99).filter(lambda _: split == 'train')"))
    error = find("SEQ36", files)
    assert error.message == "task counting has no example in split 'validation': examples in counting.py:5 gives none"
    assert error.fix == "correct examples"
    assert error.location == registered(files)


def test_a_vocabulary_size_that_is_guessed_is_said_to_be_a_guess(find: Find) -> None:
    files = module(("seqio.ByteVocabulary()", "seqio.SentencePieceVocabulary('gs://ours/one_32k.model')"))
    warning = find("SEQ12", files, gin=in_bucket("one_32k", 31_000))
    assert warning.severity is Severity.WARNING
    assert "has 32000 ids, if the name of gs://ours/one_32k.model tells its size (it cannot be read here)" in (
        warning.message
    )


ROWS = (
    "tf.data.Dataset.from_tensor_slices({'inputs': ['one two'] * 400, 'targets': ['1 2'] * 400, 'number': ['1'] * 333 "
    "+ ['n/a'] + ['2'] * 66})"
)
NUMBERS = """def numbers(dataset):
    return dataset.map(lambda e: {**e, 'number': tf.strings.to_number(e['number'])})


"""


def test_the_example_that_cannot_be_preprocessed_is_found_and_shown(resolve: Resolve) -> None:
    files = module((READ, ROWS), ("append_eos]", "append_eos, numbers]"), ("seqio.Task", f"{NUMBERS}seqio.Task"))
    errors = [f for f in resolve(trained(), files).findings if f.code == "USR01"]
    line = files["counting.py"].splitlines().index("def numbers(dataset):") + 1
    assert [error.location for error in errors] == [Location("counting.py", line)] * 2
    assert errors[0].message == (
        "example 333 of task counting train (inputs 'one two', targets '1 2', number 'n/a') cannot be preprocessed: "
        f"numbers in counting.py:{line} raised InvalidArgumentError: StringToNumberOp could not correctly convert "
        "string: n/a; numbers is given inputs [114, 113, 104, 35, 119, 122, 114, 1], targets [52, 35, 53, 1], number "
        "'n/a'"
    )
    assert errors[0].fix == "correct numbers, or drop such examples before it"


def test_an_example_is_shown_as_the_preprocessor_at_fault_is_given_it(resolve: Resolve) -> None:
    renamed = "[functools.partial(seqio.preprocessors.rekey, key_map={'inputs': 'number', 'number': 'inputs', "
    steps = f"{renamed}'targets': 'targets'}}), numbers, seqio.preprocessors.tokenize"
    files = module((READ, ROWS), ("[seqio.preprocessors.tokenize", steps), ("seqio.Task", f"{NUMBERS}seqio.Task"))
    files = {name: f"import functools\n{text}" for name, text in files.items()}
    error = next(f for f in resolve(trained(), files).findings if f.code == "USR01")
    assert error.message.startswith("example 0 of task counting train (inputs 'one two', targets '1 2', number '1') ")
    assert error.message.endswith("; numbers is given inputs '1', number 'one two', targets '1 2'")


def test_what_is_left_of_a_split_is_counted(resolve: Resolve) -> None:
    many = "tf.data.Dataset.range(20_000).map(lambda i: {'inputs': 'one', 'targets': '1'})"
    counted = f"{SOURCE[:-1]}, num_input_examples={{'train': 20_000, 'validation': 20_000}})"
    result = resolve(trained(), module((READ, many), (SOURCE, counted)))
    assert result.outcome is Outcome.PASSED
    (left,) = [doubt for doubt in result.not_checked if "of 20,000 examples of counting train: the first" in doubt]
    read = int(left.rpartition("the first ")[2].split()[0].replace(",", ""))
    assert left.startswith(f"{20_000 - read:,} of ")
    assert 64 <= read <= 10_000


def test_an_empty_split_is_the_cause_of_what_its_preprocessors_raise(resolve: Resolve) -> None:
    empty = READ.replace("['one two', 'three']", "[]").replace("['1 2', '3']", "[]")
    errors = resolve(trained(), module((READ, f"{READ} if split == 'train' else {empty}"))).findings
    (error,) = (f for f in errors if f.severity is Severity.ERROR)
    assert error.code == "SEQ36"
    assert error.message.startswith(
        "task counting has no example in split 'validation': examples in counting.py:5 gives none, and its "
    )
    assert str(error.location).startswith("counting.py:")


def test_a_tfds_dataset_without_a_version_gets_those_that_there_are(find: Find) -> None:
    files = module((SOURCE, "seqio.TfdsDataSource('mnist')"))
    error = find("SEQ31", files)
    assert error.message == "the TFDS dataset mnist is named without a version"
    assert (error.fix or "").startswith("name a version; the installed TFDS has mnist:3.")
    assert str(error.location).startswith("counting.py:")


def test_a_name_that_is_no_text_does_not_hide_a_misspelled_one(find: Find) -> None:
    files = module(after="seqio.MixtureRegistry.add(None, ['counting'], default_rate=1)\n")
    assert find("SEQ04", files, gin=trained("MIXTURE_OR_TASK_NAME = 'countin'")).fix == "use 'counting'"


def test_what_is_too_long_and_not_truncated_stops_the_training(find: Find) -> None:
    long = (
        "TASK_FEATURE_LENGTHS = {'inputs': 7, 'targets': 32}\ntrain/utils.DatasetConfig.trim_output_features = False\n"
    )
    error = find("SEQ16", module(), gin=trained(long))
    assert error.message == (
        "50% of the sampled examples of counting train are too long in inputs, and with trim_output_features = False "
        "SeqIO stops at the first one: the length is 7 and they have up to 8 tokens"
    )
    assert error.severity is Severity.ERROR


def test_an_action_that_watches_a_task_of_another_evaluation(find: Find) -> None:
    stops = "from t5x import trainer\ntrain_script.train.actions = {'INFER_EVAL': [@trainer.EarlyStoppingAction()]}\n"
    watched = "trainer.EarlyStoppingAction.mode = 'min'\ntrainer.EarlyStoppingAction.metric = ('cuonting', 'exact')\n"
    finding = find("GIN39", module(), gin=trained(f"{INFER_EVAL}{stops}{watched}"))
    assert finding.message == (
        "the action @trainer.EarlyStoppingAction() of INFER_EVAL watches the task 'cuonting' and only gets the metrics "
        "of counting"
    )
    assert (finding.fix, finding.binding) == ("name 'counting'", "trainer.EarlyStoppingAction.metric")


def test_a_mistake_that_tasks_share_is_one_finding(find: Find) -> None:
    files = module(
        ("def exact(targets, predictions):", "def exact(labels, preds):"),
        ("seqio.TaskRegistry.add(\n    'counting',", "def add(name): seqio.TaskRegistry.add(\n    name,"),
        after="""
NAMES = ['counting', 'one', 'two', 'three', 'four']
for name in NAMES:
    add(name)
seqio.MixtureRegistry.add('mixed', NAMES, default_rate=1.0)
""",
    )
    error = find("SEQ23", files, "MIXTURE_OR_TASK_NAME = 'mixed'", INFER_EVAL)
    assert error.message == (
        "metric function exact of task counting has the positional arguments (labels, preds), from which SeqIO cannot "
        "tell what to call it with; the same goes for tasks four, one, three and 1 more"
    )


SHORT = """\
def spans(dataset, sequence_length):
    if sequence_length['targets'] < 40:
        raise ValueError('Expected targets length (40) is greater than configured targets length (24)')
    return dataset


"""


def test_what_a_task_says_of_its_lengths_is_not_what_it_says_without_any(resolve: Resolve) -> None:
    files = module((STEPS, f"[spans, {STEPS[1:]}"), ("seqio.TaskRegistry", f"{SHORT}seqio.TaskRegistry"))
    result = resolve(trained("TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 24}"), files)
    (error,) = {finding.message for finding in result.errors}
    assert "raised ValueError: Expected targets length (40) is greater" in error
    assert " about TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 24} (run.gin:" in error


def test_a_feature_converter_of_another_architecture(find: Find) -> None:
    lines = ("from t5x import models", "models.EncoderDecoderModel.feature_converter_cls = @seqio.LMFeatureConverter")
    error = find("SEQ15", FILES, *lines)
    assert error.message == (
        "feature_converter_cls is LMFeatureConverter, which takes targets; the model (EncoderDecoderModel) has "
        "EncDecFeatureConverter for the features of task_feature_lengths, inputs, targets"
    )
    assert error.fix == (
        "leave models.EncoderDecoderModel.feature_converter_cls out, or bind @seqio.EncDecFeatureConverter"
    )
