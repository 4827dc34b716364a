"""What resolve says of a run that has no mistake: data, lengths, vocabularies, metrics."""

from __future__ import annotations

import seqio

from t5x_harness.resolve.resolved import Resolved, describe_vocabulary, embedding_rows
from t5x_harness.resolve.stage_report import StageReport
from t5x_harness.spec import Mode

__all__ = ["describe"]


def describe(run: Resolved, report: StageReport) -> None:
    """Adds the facts, and what could not be judged."""
    for role in run.roles:
        lengths = role.dataset.task_feature_lengths
        report.fact(
            f"{role.name} data",
            f"{role.source} {role.dataset.split}, lengths {dict(lengths) if lengths else 'of the longest example'}"
            f"{', packed' if role.dataset.pack else ''}{', cached' if role.dataset.use_cached else ''}",
        )
    _metrics(run, report)
    _truncation(run, report)
    _vocabularies(run, report)


def _metrics(run: Resolved, report: StageReport) -> None:
    for role in run.roles:
        if run.config.mode is Mode.EVAL or role.name == "infer_eval":
            judged = [task.name for task in run.tasks[role.parameter] if task.metric_fns]
            report.fact(f"{role.name} metrics", ", ".join(judged) or "none")


def _truncation(run: Resolved, report: StageReport) -> None:
    for role, sample in run.sampled():
        where = f"{sample.task.name} {sample.split}"
        if not sample.whole:
            report.not_checked.append(
                f"how much of {where} is truncated: its preprocessors need the lengths and cut by themselves"
            )
            continue
        for feature, length in (role.dataset.task_feature_lengths or {}).items():
            if share := sample.truncated(feature, length):
                report.fact(f"{where} {feature} truncated", f"{share:.0%} of {len(sample.examples)} at {length}")


def _vocabularies(run: Resolved, report: StageReport) -> None:
    rows, _ = embedding_rows(run.model, run.config)
    found = (getattr(run.model, name, None) for name in ("input_vocabulary", "output_vocabulary"))
    for shown in dict.fromkeys(describe_vocabulary(v) for v in found if isinstance(v, seqio.Vocabulary)):
        report.fact("vocabulary", f"{shown}, embedding {rows if rows else 'of unknown size'}")
    if rows is None:
        report.not_checked.append("whether every token id has a row of the embedding: its size is not known")
