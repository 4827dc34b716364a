"""What a run reads on this machine and its job would not have, which only its tasks' modules name."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.spec import FactTable, Outcome, RunResult, RunSpec, Stage, StageResult
from t5x_harness.vertex.closure import Closure, closure_of, unstaged_files

_ADVICE = (
    "a job does not have this machine's files; copy it to a bucket and name it gs://BUCKET/…, unless the image has it"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "run.gin").write_text("import tasks.own\nA = 'vocab/named.model'\n")
    for name in ("tasks/__init__.py", "tasks/own.py", "tasks/own.model", "vocab/own.model", "vocab/named.model"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "train-0.txt").write_text("x")
    return tmp_path


def _unstaged(
    project: Path, *, vocabularies: tuple[tuple[str, str], ...] = (), sources: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    spec = RunSpec(gin_files=("run.gin",), cwd=str(project))
    closure: Closure = closure_of(spec)
    tables = (
        FactTable("features", ("task and split",), (("a train",),)),
        FactTable(
            "vocabulary", ("of", "kind", "file"), tuple((of, "SentencePiece", file) for of, file in vocabularies)
        ),
        FactTable("sources", ("task", "read from"), sources),
    )
    resolved = StageResult(Stage.RESOLVE, Outcome.PASSED, tables=tables)
    return list(unstaged_files(closure, RunResult(spec=spec, stages=(resolved,))))


def test_a_vocabulary_that_only_a_module_names(project: Path) -> None:
    file = str(project / "vocab/own.model")
    assert _unstaged(project, vocabularies=(("model, my_task", file),)) == [
        f"{file}, the vocabulary of the model, my_task: {_ADVICE} at this path"
    ]


def test_examples_that_only_a_module_names(project: Path) -> None:
    given = (("my_task", "train-*.txt, gs://bucket/b.txt"), ("other", "made_up_rows"))
    assert _unstaged(project, sources=given) == [f"train-*.txt, the examples of my_task: {_ADVICE} at this path"]


@pytest.mark.parametrize("file", ["gs://t5-data/cc_all/sentencepiece.model", "/gcs/b/own.model", "-", "/no/such.model"])
def test_what_a_job_has_or_nobody_has(project: Path, file: str) -> None:
    assert not _unstaged(project, vocabularies=(("model", file),))


def test_a_file_that_is_staged_with_its_package_and_found_by_it(project: Path) -> None:
    assert not _unstaged(project, vocabularies=(("model", str(project / "tasks/own.model")),))
    assert _unstaged(project, vocabularies=(("model", "tasks/own.model"),)), "a job starts in another folder"


def test_a_file_of_an_installed_package_is_the_images(project: Path) -> None:
    from t5x_harness.sample_tasks import vocabularies

    assert not _unstaged(project, vocabularies=(("model", str(vocabularies.SENTENCEPIECE_MODEL)),))


def test_what_the_config_names_is_said_once(project: Path) -> None:
    assert not _unstaged(project, vocabularies=(("model", "vocab/named.model"),))


def test_without_resolve_nothing_is_known(project: Path) -> None:
    spec = RunSpec(gin_files=("run.gin",), cwd=str(project))
    assert unstaged_files(closure_of(spec), RunResult(spec=spec, stages=())) == ()
