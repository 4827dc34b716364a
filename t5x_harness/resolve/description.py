"""What resolve reports about a run: its data, vocabularies, lengths, sources and metrics, as tables."""

from __future__ import annotations

import seqio

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.tables import columns
from t5x_harness.resolve.datasets import DataRole, vocabulary_size
from t5x_harness.resolve.mixtures import mixtures_of, rates_of, tasks_of_open_rate
from t5x_harness.resolve.resolved import Resolved, embedding_rows
from t5x_harness.resolve.samples import Sample, packed_rows
from t5x_harness.slices.slice import Slice
from t5x_harness.standins.task_data import cache_of, files_of, patterns_of
from t5x_harness.upstream.seqio import metric_functions, metric_objects, vocabulary_file


def describe(run: Resolved, slice_: Slice, report: StageReport) -> None:
    """Adds the facts, and what could not be judged.

    Args:
      run: the resolved run, its data sampled.
      slice_: the slice whose hosts are going to read the data.
      report: gets the facts.
    """
    for role in run.roles:
        lengths = role.dataset.task_feature_lengths
        report.fact(
            f"{role.name} data",
            f"{role.source} {role.dataset.split}, lengths {dict(lengths) if lengths else 'of the longest example'}"
            f"{', packed' if role.dataset.pack else ''}{', cached' if role.dataset.use_cached else ''}",
        )
    _vocabularies(run, report)
    _features(run, report)
    _packing(run, report)
    _sources(run, slice_, report)
    _rates(run, report)
    _metrics(run, report)


def _vocabularies(run: Resolved, report: StageReport) -> None:
    """Adds a row for each vocabulary with everything that uses it; equal vocabularies share a row."""
    users: list[tuple[seqio.Vocabulary, list[str]]] = []
    for name, vocabulary in _used_vocabularies(run):
        known = next((names for other, names in users if other == vocabulary), None)
        if known is None:
            users.append((vocabulary, [name]))
        elif name not in known:
            known.append(name)
    for vocabulary, _ in users:
        if run.is_vocabulary_guessed(vocabulary):
            file, size = vocabulary_file(vocabulary), vocabulary_size(vocabulary)
            doubt = f"how many ids {file} has: {size} is a guess, from its name and the rows of the embedding"
            report.not_checked += [doubt] if doubt not in report.not_checked else []
    rows = [(", ".join(names), *_vocabulary(vocabulary)) for vocabulary, names in users]
    if rows:
        report.fact("vocabulary", columns(rows, ("of", "kind", "ids", "extra", "pad", "eos", "unk", "file")))
    embedding, _ = embedding_rows(run.model, run.config)
    report.fact("embedding", f"{embedding:,} rows" if embedding else "of unknown size")
    if embedding is None:
        report.not_checked.append("whether every token id has a row of the embedding: its size is not known")


def _used_vocabularies(run: Resolved) -> list[tuple[str, seqio.Vocabulary]]:
    found = [
        ("model", vocabulary)
        for side in ("input", "output")
        if isinstance(vocabulary := getattr(run.model, f"{side}_vocabulary", None), seqio.Vocabulary)
    ]
    tasks = {task.name: task for _, task in run.reads()}
    return [*found, *((name, f.vocabulary) for name, task in tasks.items() for f in task.output_features.values())]


def _vocabulary(vocabulary: seqio.Vocabulary) -> tuple[object, ...]:
    size = vocabulary_size(vocabulary)
    ids = ("?" if size is None else _special(vocabulary, name) for name in ("pad_id", "eos_id", "unk_id"))
    file = vocabulary_file(vocabulary) or "-"
    return type(vocabulary).__name__, "?" if size is None else size, vocabulary.extra_ids, *ids, file


def _special(vocabulary: seqio.Vocabulary, name: str) -> object:
    number = getattr(vocabulary, name, None)
    return "-" if number is None else number


def _features(run: Resolved, report: StageReport) -> None:
    """Adds a row for each feature of each split that was read, and each length that the run gives it."""
    rows: dict[tuple[object, ...], None] = {}
    for role, sample in run.sampled():
        where = f"{sample.task.name} {sample.split}"
        if not sample.whole:
            report.not_checked.append(
                f"how much of {where} is truncated: its preprocessors need the lengths and cut by themselves"
            )
        for name, feature in sample.task.output_features.items():
            rows[where, name, feature.dtype.name, feature.rank, *_lengths(role, sample, name)] = None
    if rows:
        head = (
            "task and split",
            "feature",
            "type",
            "rank",
            "length",
            "median",
            "longest",
            "truncated",
            "padding",
            "examples read",
        )
        report.fact("features", columns(list(rows), head))


def _lengths(role: DataRole, sample: Sample, feature: str) -> tuple[object, ...]:
    """Returns a feature's length, its median and longest values, the shares cut and padded, and how many were read."""
    given, seen = (role.dataset.task_feature_lengths or {}).get(feature), len(sample.lengths(feature))
    if not seen:
        return given or "-", "-", "-", "-", "-", seen
    length = given if isinstance(given, int) else sample.longest(feature)
    cut = f"{sample.truncated(feature, length):.0%}" if sample.whole else "?"
    shown = given if given is not None else "longest"
    median = f"{sample.median(feature):g}"
    return shown, median, sample.longest(feature), cut, f"{sample.padding(feature, length):.0%}", seen


def _packing(run: Resolved, report: StageReport) -> None:
    """Adds how many examples share a row, for data that is packed and whose examples were read whole."""
    rows = []
    for role, sample in run.sampled():
        lengths = {k: n for k, n in (role.dataset.task_feature_lengths or {}).items() if isinstance(n, int)}
        if not role.dataset.pack or run.has_evaluator(role) or not lengths or not sample.examples:
            continue
        if all(len(sample.lengths(name)) == len(sample.examples) for name in lengths):
            gain = len(sample.examples) / packed_rows(sample.examples, lengths)
            rows.append((role.name, sample.task.name, f"{gain:.1f}"))
    if rows:
        report.fact("packing", columns(rows, ("data", "task", "examples in a row")))


def _sources(run: Resolved, slice_: Slice, report: StageReport) -> None:
    rows: dict[tuple[object, ...], None] = {}
    for role, task in run.reads():
        rows[(task.name, role.dataset.split, *_source(run, role, task))] = None
    if rows:
        head = ("task", "split", "source", "files", "examples", "cache", "read from")
        report.fact("sources", columns(list(rows), head))
    report.fact("hosts that read", slice_.hosts)


def _source(run: Resolved, role: DataRole, task: seqio.Task) -> tuple[object, ...]:
    """Returns a source's kind, files, examples, cache and origin."""
    if standin := run.standins.source_of(task):
        return type(task.source).__name__, "-", "?", "-", standin
    split, cached = role.dataset.split, cache_of(task) if task.supports_caching else None
    files, size = files_of(task, split), run.source_size(role, task)
    if cached:
        cache = f"{cached}{'' if role.dataset.use_cached else ', not used'}"
    else:
        cache = "none" if task.supports_caching else "not cacheable"
    return (
        type(task.source).__name__,
        "-" if files is None else len(files),
        "?" if size is None else f"{size:,}",
        cache,
        ", ".join(patterns_of(task, split)) or "-",
    )


def _rates(run: Resolved, report: StageReport) -> None:
    said = set()
    for mixture, split in mixtures_of(run):
        rates = {task: rate for task, rate in rates_of(mixture, split).items() if isinstance(rate, float)}
        total = sum(rates.values())
        rows = [(task, f"{rate:g}", f"{rate / total:.1%}" if total > 0 else "-") for task, rate in rates.items()]
        table = columns(rows, ("task", "rate", "share"))
        if open_rates := tasks_of_open_rate(run, mixture):
            doubt = f"the rates of {mixture.name}: how many examples {', '.join(open_rates)} has is not known here"
            report.not_checked += [doubt] if doubt not in report.not_checked else []
        if (mixture.name, table) not in said:  # another split usually has the same rates
            said.add((mixture.name, table))
            report.fact(f"rates of {mixture.name} {split}", table)


def _metrics(run: Resolved, report: StageReport) -> None:
    for role in run.roles:
        if run.has_evaluator(role):
            rows = [(task.name, _names(task)) for task in run.tasks[role.parameter] if run.is_evaluated(role, task)]
            report.fact(f"{role.name} metrics", columns(rows) or "none")


def _names(task: seqio.Task) -> str:
    """Returns the names of a task's metrics as its module gives them."""
    functions = [getattr(f, "func", f) for f in metric_functions(task)]  # func: of a partial
    named = [getattr(f, "__name__", type(f).__name__) for f in functions]
    return ", ".join([*named, *(type(m).__name__ for m in metric_objects(task))])
