"""The files staged for a job: its gin files and the user's modules; and local files that the job will lack."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.gin.reading import program_of
from t5x_harness.spec import FactTable, Outcome, RunResult, RunSpec, Stage, StageResult
from t5x_harness.vertex import modules
from t5x_harness.vertex.closure import Closure, closure_of, unstaged_files
from t5x_harness.vertex.modules import ClosureError

ROOT = "/gcs/b/stage"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _closure(folder: Path, *gin_files: str, **fields: tuple[str, ...]) -> Closure:
    return closure_of(RunSpec(gin_files, cwd=str(folder), runtime="embedded", **fields))


def _staged(closure: Closure) -> dict[str, str]:
    return {file.name: file.content.decode() for file in closure.files(ROOT)}


def test_includes_of_includes_are_staged_and_lead_to_each_other(tmp_path: Path) -> None:
    files = {
        "run.gin": "include 'models/my.gin'  # mine\ninclude 't5x/configs/runs/pretrain.gin'\nX = 1\n",
        "models/my.gin": 'include "models/base.gin"\n',
        "models/base.gin": "Y = 2\n",
    }
    _write(tmp_path, files)
    closure = _closure(tmp_path, "run.gin")
    assert _staged(closure) == {
        "gin/models/base.gin": "Y = 2\n",
        "gin/models/my.gin": "include '/gcs/b/stage/gin/models/base.gin'\n",
        "gin/run.gin": "include '/gcs/b/stage/gin/models/my.gin'  # mine\n"
        "include 't5x/configs/runs/pretrain.gin'\nX = 1\n",
    }
    assert [path.under(ROOT) for path in closure.gin_files] == ["/gcs/b/stage/gin/run.gin"]
    assert closure.of_image == ("t5x/configs/runs/pretrain.gin",)


def test_two_files_of_one_name_stay_two_files(tmp_path: Path) -> None:
    _write(tmp_path / "project", {"a/model.gin": "X = 1\n", "b/model.gin": "X = 2\n"})
    _write(tmp_path / "other", {"a/model.gin": "X = 3\n"})
    other = str(tmp_path / "other" / "a" / "model.gin")
    closure = _closure(tmp_path / "project", "a/model.gin", "b/model.gin", other)
    names = [path.under(ROOT) for path in closure.gin_files]
    assert names[:2] == [f"{ROOT}/gin/a/model.gin", f"{ROOT}/gin/b/model.gin"]
    assert re.fullmatch(rf"{ROOT}/gin/a-[0-9a-f]{{8}}/model\.gin", names[2])
    assert sorted(_staged(closure).values()) == ["X = 1\n", "X = 2\n", "X = 3\n"]


def test_files_of_search_paths_outside_are_staged_by_their_folder(tmp_path: Path) -> None:
    _write(tmp_path / "project", {"run.gin": "include 'shared.gin'\n"})
    _write(tmp_path / "lib", {"shared.gin": "X = 1\n"})
    closure = _closure(tmp_path / "project", "run.gin", search_paths=("../lib",))
    (shared,) = (name for name in _staged(closure) if name.endswith("shared.gin"))
    assert re.fullmatch(r"gin/lib-[0-9a-f]{8}/shared\.gin", shared)
    assert _staged(closure)["gin/run.gin"] == f"include '{ROOT}/{shared}'\n"


def test_files_of_t5x_are_the_images_however_they_are_asked_for(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "include 't5x/t5x/configs/runs/pretrain.gin'\n"})
    closure = _closure(tmp_path, "t5x/examples/t5/t5_1_1/tiny.gin", "run.gin")
    assert [path.under(ROOT) for path in closure.gin_files] == [
        "t5x/examples/t5/t5_1_1/tiny.gin",
        f"{ROOT}/gin/run.gin",
    ]
    assert _staged(closure) == {"gin/run.gin": "include 't5x/configs/runs/pretrain.gin'\n"}


def test_gin_in_a_bucket_is_read_there_by_its_path_and_not_by_its_address(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "include 'gs://my-bucket/model.gin'\n"})
    closure = _closure(tmp_path, "gs://my-bucket/first.gin", "run.gin", search_paths=("gs://my-bucket/lib",))
    assert [path.under(ROOT) for path in closure.gin_files] == ["/gcs/my-bucket/first.gin", f"{ROOT}/gin/run.gin"]
    assert _staged(closure) == {"gin/run.gin": "include '/gcs/my-bucket/model.gin'\n"}
    assert closure.of_buckets == ("/gcs/my-bucket/model.gin", "/gcs/my-bucket/first.gin")
    assert closure.search_paths == ("/gcs/my-bucket/lib",)


def test_what_bindings_include_is_staged(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "X = 1\n", "more.gin": "Y = 1\n"})
    closure = _closure(tmp_path, "run.gin", bindings=("X = 2", "include 'more.gin'"))
    assert closure.bindings(ROOT) == ("X = 2", f"include '{ROOT}/gin/more.gin'")
    assert set(_staged(closure)) == {"gin/run.gin", "gin/more.gin"}


def test_the_staged_copies_mean_what_the_files_mean(tmp_path: Path) -> None:
    files = {
        "run.gin": "X = 1\ninclude 'a/x.gin'\ninclude 'b/x.gin'\nZ = %X\n",
        "a/x.gin": "X = 2\nA = 1\n",
        "b/x.gin": "include 'c.gin'\nX = 3\n",
        "c.gin": "C = 1\n",
    }
    _write(tmp_path, files)
    closure = _closure(tmp_path, "run.gin")
    stage = tmp_path / "elsewhere"
    _write(stage, {file.name: file.content.decode() for file in closure.files(str(stage))})
    (given,) = (path.under(str(stage)) for path in closure.gin_files)
    there = program_of(RunSpec((given,), cwd="/", runtime="embedded"))
    assert {n: m.value for n, m in there.macros.items()} == {n: m.value for n, m in closure.program.macros.items()}
    assert not there.problems


def test_the_same_files_have_the_same_digest_wherever_they_are_staged(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "include 'more.gin'\n", "more.gin": "Y = 1\n"})
    before = _closure(tmp_path, "run.gin").digest
    assert _closure(tmp_path, "run.gin").digest == before
    _write(tmp_path, {"more.gin": "Y = 2\n"})
    assert _closure(tmp_path, "run.gin").digest != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X = 1\ninclude 'nope.gin'\n", "run.gin:2 includes nope.gin: there is no such file; nothing is staged"),
        ("include 'run.gin'\n", "run.gin:1 includes run.gin: it includes itself, so this would never end"),
    ],
)
def test_an_include_that_leads_nowhere_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    _write(tmp_path, {"run.gin": text})
    with pytest.raises(ClosureError, match=re.escape(message)):
        _closure(tmp_path, "run.gin")


def test_a_file_that_takes_the_place_of_one_of_t5xs_is_refused(tmp_path: Path) -> None:
    files = {"run.gin": "include 't5x/examples/t5/t5_1_1/tiny.gin'\n", "t5x/examples/t5/t5_1_1/base.gin": "X = 1\n"}
    _write(tmp_path, files)
    with pytest.raises(ClosureError, match=r"tiny\.gin:\d+ is T5X's own and includes t5x/examples/t5/t5_1_1/base\.gin"):
        _closure(tmp_path, "run.gin")


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    _write(tmp_path / "secrets", {"key.gin": "X = 1\n"})
    _write(tmp_path / "project", {"run.gin": "include 'linked.gin'\n"})
    (tmp_path / "project" / "linked.gin").symlink_to(tmp_path / "secrets" / "key.gin")
    with pytest.raises(ClosureError) as caught:
        _closure(tmp_path / "project", "run.gin")
    assert f"this is a link to {tmp_path}/secrets/key.gin, outside of the project, and is not staged" in str(
        caught.value
    )
    allowed = _closure(tmp_path / "project", "run.gin", search_paths=(str(tmp_path / "secrets"),))
    assert "X = 1\n" in _staged(allowed).values()


def test_files_of_this_machine_that_values_name_are_said_to_be_missing_in_the_job(tmp_path: Path) -> None:
    text = (
        "A = 'vocab/own.model'\nB = 'vocab/other.model'\nC = 'train'\nD = 'gs://b/own.model'\nE = 3\nA = %F\n"
        "F = 'vocab/own.model'\nG = 't5x/own.model'\n"
    )
    _write(tmp_path, {"run.gin": text, **dict.fromkeys(("train", "vocab/own.model", "t5x/own.model"), "")})
    closure = _closure(tmp_path, "run.gin")
    assert closure.passed_over == (
        "vocab/own.model, which F names (run.gin:7): a job does not have this machine's files; copy it to a bucket and "
        "name it gs://BUCKET/…, unless the image has it at this path",
    )


def _names(closure: Closure) -> list[str]:
    return sorted(file.name for file in closure.modules)


@pytest.mark.parametrize(
    ("files", "staged"),
    [
        (
            {
                "run.gin": "import my_tasks\n",
                "my_tasks.py": "import os, seqio\nfrom my_metrics import bleu\ndef later():\n    import helpers.text\n",
                "my_metrics.py": "import numpy\n",
                **dict.fromkeys(("helpers/text.py", "helpers/unused.py", "unused.py"), ""),
            },
            ["helpers/text.py", "my_metrics.py", "my_tasks.py"],
        ),
        (
            {
                "run.gin": "from pkg import tasks\n",
                "src/pkg/tasks.py": "from . import text\n",
                **dict.fromkeys(("src/pkg/__init__.py", "src/pkg/data/vocab.model", "src/pkg/.git/config"), ""),
                "src/pkg/__pycache__/tasks.cpython-311.pyc": "",
            },
            ["pkg/__init__.py", "pkg/data/vocab.model", "pkg/tasks.py"],
        ),
        (
            {
                "run.gin": "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
                "TASKS = 'my_tasks'\nutils.import_module.module = %TASKS\n",
                "my_tasks.py": "",
            },
            ["my_tasks.py"],
        ),
    ],
    ids=["with what it imports", "a package with its data and without caches", "that a binding names"],
)
def test_a_module_is_staged(tmp_path: Path, files: dict[str, str], staged: list[str]) -> None:
    _write(tmp_path, files)
    assert _names(_closure(tmp_path, "run.gin", python_path=("src",))) == [f"python/{name}" for name in staged]


def test_installed_packages_are_left_to_the_image_and_named(tmp_path: Path) -> None:
    imports = "import t5x_harness.sample_tasks.tasks\nimport sacrebleu\nimport seqio\nfrom t5x import utils\n"
    _write(tmp_path, {"run.gin": imports})
    closure = _closure(tmp_path, "run.gin")
    assert closure.modules == ()
    assert closure.of_image == ("module t5x_harness.sample_tasks.tasks", "module sacrebleu")


def test_the_module_for_preempted_jobs_goes_along_without_the_harness(tmp_path: Path) -> None:
    imports = "from __gin__ import dynamic_registration\nfrom t5x_harness import preemption\nfrom t5x import utils\n"
    _write(tmp_path, {"run.gin": imports})
    closure = _closure(tmp_path, "run.gin")
    assert [file.name for file in closure.modules] == ["python/t5x_harness/preemption.py"]
    assert closure.of_image == ()
    _write(tmp_path, {file.name: file.content.decode() for file in closure.modules})
    find = "import importlib.util; print(importlib.util.find_spec('t5x_harness.preemption').origin)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", find],  # without the installed harness, as in an image of T5X
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "python" / "t5x_harness" / "preemption.py")


def test_a_package_installed_below_the_project_is_not_the_projects(tmp_path: Path) -> None:
    _write(tmp_path, {"run.gin": "import theirs\n", ".venv/lib/site-packages/theirs/__init__.py": ""})
    with pytest.MonkeyPatch.context() as context:
        context.syspath_prepend(str(tmp_path / ".venv" / "lib" / "site-packages"))
        closure = _closure(tmp_path, "run.gin")
    assert closure.modules == ()
    assert closure.of_image == ("module theirs",)


def test_links_out_of_a_package_are_passed_over_and_named(tmp_path: Path) -> None:
    _write(tmp_path, {"secret.txt": "s"})
    _write(tmp_path / "project", {"run.gin": "import pkg\n", "pkg/__init__.py": ""})
    (tmp_path / "project" / "pkg" / "linked.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "project" / "pkg" / "folder").symlink_to(tmp_path)
    closure = _closure(tmp_path / "project", "run.gin")
    assert _names(closure) == ["python/pkg/__init__.py"]
    assert closure.passed_over == (
        f"{tmp_path}/project/pkg/folder: a link to a folder",
        f"{tmp_path}/project/pkg/linked.txt: a link out of {tmp_path}/project",
    )


def test_packages_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "MOST_BYTES", 1 << 20)
    _write(tmp_path, {"run.gin": "import pkg\n", "pkg/__init__.py": "", "pkg/weights.bin": "0" * (1 << 20) + "1"})
    with pytest.raises(ClosureError, match=r"weights\.bin: with it more than 1 MiB of Python packages would be staged"):
        _closure(tmp_path, "run.gin")


def test_a_module_that_is_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"elsewhere/tasks.py": "", "project/run.gin": "import tasks\n"})
    (tmp_path / "project" / "tasks.py").symlink_to(tmp_path / "elsewhere" / "tasks.py")
    with pytest.raises(
        ClosureError, match=r"tasks\.py: this is a link to .*/elsewhere/tasks\.py, outside of the project"
    ):
        _closure(tmp_path / "project", "run.gin")


_ADVICE = (
    "a job does not have this machine's files; copy it to a bucket and name it gs://BUCKET/…, unless the image has it"
)


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    names = ("tasks/__init__.py", "tasks/own.py", "tasks/own.model", "vocab/own.model", "vocab/named.model")
    _write(tmp_path, {"run.gin": "import tasks.own\nA = 'vocab/named.model'\n", **{name: name for name in names}})
    _write(tmp_path, {"train-0.txt": "x"})
    return tmp_path


def _unstaged(
    own_data: Path, *, vocabularies: tuple[tuple[str, str], ...] = (), sources: tuple[tuple[str, str], ...] = ()
) -> list[str]:
    spec = RunSpec(gin_files=("run.gin",), cwd=str(own_data))
    tables = (
        FactTable("features", ("task and split",), (("a train",),)),
        FactTable(
            "vocabulary", ("of", "kind", "file"), tuple((of, "SentencePiece", file) for of, file in vocabularies)
        ),
        FactTable("sources", ("task", "read from"), sources),
    )
    resolved = StageResult(Stage.RESOLVE, Outcome.PASSED, tables=tables)
    return list(unstaged_files(closure_of(spec), RunResult(spec=spec, stages=(resolved,))))


def test_a_vocabulary_that_only_a_module_names(own_data: Path) -> None:
    file = str(own_data / "vocab/own.model")
    assert _unstaged(own_data, vocabularies=(("model, my_task", file),)) == [
        f"{file}, the vocabulary of the model, my_task: {_ADVICE} at this path"
    ]


def test_examples_that_only_a_module_names(own_data: Path) -> None:
    given = (("my_task", "train-*.txt, gs://bucket/b.txt"), ("other", "made_up_rows"))
    assert _unstaged(own_data, sources=given) == [f"train-*.txt, the examples of my_task: {_ADVICE} at this path"]


@pytest.mark.parametrize(
    "file",
    ["gs://t5-data/cc_all/sentencepiece.model", "/gcs/b/own.model", "-", "/no/such.model", "vocab/named.model"],
)
def test_what_a_job_has_or_nobody_has_or_the_config_names(own_data: Path, file: str) -> None:
    assert not _unstaged(own_data, vocabularies=(("model", file),))


def test_a_file_that_is_staged_with_its_package_and_found_by_it(own_data: Path) -> None:
    assert not _unstaged(own_data, vocabularies=(("model", str(own_data / "tasks/own.model")),))
    assert _unstaged(own_data, vocabularies=(("model", "tasks/own.model"),)), "a job starts in another folder"


def test_a_file_of_an_installed_package_is_the_images(own_data: Path) -> None:
    from t5x_harness.sample_tasks import vocabularies

    assert not _unstaged(own_data, vocabularies=(("model", str(vocabularies.SENTENCEPIECE_MODEL)),))


def test_without_resolve_nothing_is_known(own_data: Path) -> None:
    spec = RunSpec(gin_files=("run.gin",), cwd=str(own_data))
    assert unstaged_files(closure_of(spec), RunResult(spec=spec, stages=())) == ()
