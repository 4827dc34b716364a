"""The commands: their arguments, their output and their exit status."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.arguments import specs_of
from t5x_harness.commands.main import main, parser_of
from t5x_harness.runs import pool
from t5x_harness.spec import Stage
from t5x_harness.workers.zygote import WARM_WORKER_UNUSED

GOOD = """\
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
TRAIN_STEPS = 100
DROPOUT_RATE = 0.0
"""
EMBEDDED = "--t5x-runtime=embedded"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a good run config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.gin").write_text(GOOD)
    return tmp_path


def test_a_good_config_ends_with_0(harness: Any) -> None:
    out, err = harness(0, "lint", "run.gin", EMBEDDED)
    assert out.splitlines()[0].split() == ["run", "mode", "slice", "lint", "time", "findings"]
    assert out.splitlines()[1].split()[:4] == ["run", "train", "v3-8", "ok"]
    assert err == ""


def test_a_finding_ends_with_1(harness: Any) -> None:
    out = harness(1, "lint", "run.gin", EMBEDDED, "--gin.train_script.train.eval_period=3").out
    assert "--gin bindings:1: error GIN28: no configurable matches train_script.train" in out
    assert out.endswith(" s\n")


TWO = ("--gin.UNREAD=1", "--gin.train/utils.DatasetConfig.pakc=True")
"""A warning, GIN02, and an error, GIN13."""


def codes(captured: Any) -> list[tuple[str, str]]:
    return [(f["code"], f["severity"]) for f in json.loads(captured.out)["findings"]]


def test_strictly_warnings_fail(folder: Path, harness: Any) -> None:
    assert "warning GIN02" in harness(0, "lint", "run.gin", EMBEDDED, TWO[0]).out
    out = harness(1, "lint", "run.gin", EMBEDDED, TWO[0], "--strict").out
    assert "error GIN02" in out
    assert "1 failed, 1 error (strictly: warnings are errors) in " in out
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\nstrict = true\n")
    assert codes(harness(1, "lint", "run.gin", EMBEDDED, TWO[0], "--json")) == [("GIN02", "error")]


def test_selected_codes_are_the_only_ones(folder: Path, harness: Any) -> None:
    both = ["lint", "run.gin", EMBEDDED, "--json", *TWO]
    assert codes(harness(1, *both)) == [("GIN13", "error"), ("GIN02", "warning")]
    assert codes(harness(0, *both, "--select=GIN02,CKP")) == [("GIN02", "warning")]
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\nselect = ['CKP']\n")
    assert codes(harness(0, *both)) == []
    assert codes(harness(1, *both, "--select=GIN", "--ignore=GIN02")) == [("GIN13", "error")]
    assert "--select: no rule has the code 'GIN99'" in harness(2, *both, "--select=GIN99").err


def test_quietly_the_findings_and_the_last_line(harness: Any) -> None:
    lines = harness(0, "lint", "run.gin", EMBEDDED, TWO[0], "-q").out.splitlines()
    assert lines[0].startswith("--gin bindings:1: warning GIN02: ")
    assert lines[-1].startswith("1 passed, 1 warning in ")
    assert not [line for line in lines if line.startswith(("run ", "not checked"))]
    assert len(harness(0, "lint", "run.gin", EMBEDDED, "-q").out.splitlines()) == 1
    assert main(["lint", "run.gin", "-q", "-v"]) == 2


def test_the_python_path_is_the_one_given_before_that_of_the_project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\npython_path = ['src']\n")
    parser, _ = parser_of("run")
    arguments = parser.parse_args(["run", "run.gin", "--python-path=lib,more", "--python-path=/x", "--until=plan"])
    (spec,) = specs_of(arguments, folder)
    assert spec.python_path == (f"{folder}/lib", f"{folder}/more", "/x", f"{folder}/src")
    assert spec.settings.until is Stage.PLAN


@pytest.mark.parametrize(
    ("command", "option", "message"),
    [
        *(("lint", each, f"unrecognized arguments: {each}") for each in ("--full-size", "--model_dir=x", "--gcs=off")),
        *(("lint", each, f"unrecognized arguments: {each}") for each in ("--standins=all", "--read-seconds=3")),
        ("lint", "--gin_serch_paths=x", "unrecognized arguments: --gin_serch_paths=x"),
        ("run", "--until=tarin", "argument --until: invalid"),
    ],
)
def test_an_option_or_a_stage_that_there_is_not_is_2(harness: Any, command: str, option: str, message: str) -> None:
    assert message in harness(2, command, "run.gin", option).err
    harness(0, "lint", "run.gin", EMBEDDED, "--gcs-root=.", "--slice=v3-32")


@pytest.mark.parametrize(
    ("table", "variable", "argument", "on"),
    [
        ("", "", "", False),
        ("", "", "--tpu-numerics", True),
        ("", "on", "", True),
        ("true", "", "", True),
        ("true", "0", "", False),
        ("false", "off", "--tpu-numerics", True),
    ],
)
def test_a_switch_is_set_by_an_argument_a_variable_or_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch, table: str, variable: str, argument: str, on: bool
) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.t5x_harness]\n{table and f'tpu_numerics = {table}'}\n")
    monkeypatch.setenv("T5X_HARNESS_TPU_NUMERICS", variable)
    arguments = parser_of("run")[0].parse_args(["run", "run.gin", *filter(None, [argument])])
    (spec,) = specs_of(arguments, folder)
    assert spec.settings.tpu_numerics is on


def test_a_variable_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch, harness: Any) -> None:
    monkeypatch.setenv("T5X_HARNESS_TPU_NUMERICS", "maybe")
    assert (
        harness(2, "run", "run.gin").err
        == "t5x-harness: T5X_HARNESS_TPU_NUMERICS must be 1 or 0 (or on, off, true, false, yes, no), not 'maybe'\n"
    )
    assert main(["lint", "run.gin", EMBEDDED]) == 0  # it runs nothing


@pytest.mark.parametrize("option", ["--full-size", "--full-mesh", "--tpu-numerics", "--exact-numerics"])
def test_plan_has_no_option_for_the_size_of_what_it_does_not_run(option: str, harness: Any) -> None:
    assert f"unrecognized arguments: {option}" in harness(2, "plan", "run.gin", option).err
    assert "--full-" not in harness(0, "plan", "--help").out
    assert f"  {option} " in harness(0, "run", "--help").out


def test_bindings_come_last_and_in_order(harness: Any) -> None:
    assert main(["lint", "run.gin", EMBEDDED, "--gin.TRAIN_STEPS=1e3", "--gin.TRAIN_STEPS=10"]) == 0
    shown = harness(1, "lint", "run.gin", EMBEDDED, "--gin.TRAIN_STEPS=10", "--gin.TRAIN_STEPS=1e3").out
    assert "--gin bindings:2: error GIN09: TRAIN_STEPS = 1000.0 is a float" in shown


def test_several_gin_files_are_one_run_and_several_files_are_several(folder: Path, harness: Any) -> None:
    (folder / "more.gin").write_text("TRAIN_STEPS = 7\n")
    runs = json.loads(harness(0, "lint", "--gin_file=run.gin", "--gin_file=more.gin", EMBEDDED, "--json").out)["runs"]
    assert [run["spec"]["gin_files"] for run in runs] == [["run.gin", "more.gin"]]
    document = json.loads(harness(0, "lint", "run.gin", "more.gin", EMBEDDED, "--json").out)  # the latter is a fragment
    assert [run["name"] for run in document["runs"]] == ["run", "more"]
    assert any(n["run"] == "more" and "GIN31" in n["text"] for n in document["not_checked"])


def test_a_folder_stands_for_the_run_configs_below_it(folder: Path, harness: Any) -> None:
    (folder / "conf" / "deep").mkdir(parents=True)
    (folder / "conf" / "deep" / "a.gin").write_text(GOOD)
    (folder / "conf" / "fragment.gin").write_text("TRAIN_STEPS = 7\n")
    (folder / "conf" / "broken.gin").write_text("TRAIN_STEPS = x\n")
    document = json.loads(harness(1, "lint", "conf", EMBEDDED, "--json").out)
    assert [run["spec"]["gin_files"] for run in document["runs"]] == [["conf/broken.gin"], ["conf/deep/a.gin"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lint"], "nothing to run: name a gin file, or declare runs in [tool.t5x_harness] of a pyproject.toml ("),
        (["lint", "gone.gin"], "there is no gin file gone.gin; searched: ., "),
        (["run", "gone.gin"], "there is no gin file gone.gin; searched: ., "),
        (["lint", "run.gin", "--gin.X"], "--gin.X: a gin binding has the form --gin.NAME=VALUE"),
        (["lint", "run.gin", "--gin.--gin.X=1"], "--gin.--gin.X=1: --gin. stands there twice, write --gin.X=1"),
        (["lint", "run.gin", "--gin_file=run.gin"], "FILE and --gin_file at once: each FILE is a run of its own"),
        (["run", "run.gin", "run.gin", "run2.gin", "--model_dir=m"],
         "--model_dir m for 2 runs: two runs cannot write into one folder; run them one at a time"),
        (["run", "run.gin", "--model_dir=run.gin"], "is a file"),
        (["plan", "run.gin", "--slice=v3-9"], "argument --slice: 'v3-9' is not a TPU slice"),
        (["run", "run.gin", "--times=3"], "--times is the number of faults of --campaign: give --campaign=SEED, too"),
        (["run", "run.gin", "--campaign=1", "--preempt=save"], "--preempt orders one fault, and --campaign"),
        (["lint", "empty"], "empty: no run config there, but no gin file"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_2(folder: Path, harness: Any, arguments: list[str], message: str) -> None:
    (folder / "empty").mkdir()
    before = sorted(folder.rglob("*"))
    out, err = harness(2, *arguments, EMBEDDED)
    assert out == ""
    assert message in err
    assert err.startswith("t5x-harness: ")
    assert len(err.splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_refused_first(
    folder: Path, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t5x_harness.runs.model_dirs.os.access", lambda path, mode: False)  # root may write anywhere
    said = harness(2, "run", "run.gin", "--model_dir=out", EMBEDDED).err
    assert f"--model_dir out: no permission to write into {folder}" in said
    assert not (folder / "out").exists()


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("options", "allowed"), [([], False), (["--network=forbid"], False), (["--network=allow"], True)]
)
def test_the_network_is_forbidden_unless_it_is_allowed(
    command: str, options: list[str], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(pool, "run_specs", lambda *_, network, **__: seen.append(network) or ())
    main([command, "run.gin", EMBEDDED, *options])
    assert seen == [allowed]


def test_a_mistake_in_pyproject_is_2_with_its_line(folder: Path, harness: Any) -> None:
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\nslic = 'v3-8'\n")
    assert harness(2, "lint", "run.gin", EMBEDDED).err == (
        f"t5x-harness: {folder}/pyproject.toml:2: unknown key 'slic': did you mean slice?\n"
    )


def test_declared_runs_are_run_from_the_projects_folder(
    folder: Path, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text(
        "[tool.t5x_harness]\ngin_files = ['*.gin']\nslice = 'v3-32'\nsearch_paths = ['conf']\nbindings = ['A = 1']\n"
        "[[tool.t5x_harness.runs]]\nname = 'short'\ngin_files = ['run.gin']\nbindings = { TRAIN_STEPS = 3 }\n"
        "search_paths = ['own']\nmode = 'train'\nslice = 'v4-8'\n"
    )
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    printed = harness(0, "lint", EMBEDDED, "--json", "--gin.B=2", "--gin_search_paths=x,y").out
    specs = [run["spec"] for run in json.loads(printed)["runs"]]
    assert [spec["bindings"] for spec in specs] == [["A = 1", "TRAIN_STEPS = 3", "B = 2"], ["A = 1", "B = 2"]]
    assert [spec["search_paths"] for spec in specs] == [
        [f"{folder}/deep/x", f"{folder}/deep/y", f"{folder}/own", f"{folder}/conf"],
        [f"{folder}/deep/x", f"{folder}/deep/y", f"{folder}/conf"],
    ]
    assert [(spec["slice"], spec["cwd"], spec["mode"]) for spec in specs] == [
        ("v4-8", str(folder), "train"),
        ("v3-32", str(folder), "train"),
    ]
    runs = json.loads(harness(0, "lint", EMBEDDED, "--json", "--slice=v2-8").out)["runs"]
    assert [run["slice"] for run in runs] == ["v2-8", "v2-8"]


@pytest.fixture
def noted(folder: Path) -> list[str]:
    """The arguments for linting a config with a warning and a note, but without an error."""
    (folder / "noted.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
        f"{GOOD.replace('pretrain.gin', 'eval.gin').replace('TRAIN_STEPS', 'TYPO')}"
        "CHECKPOINT_PATH = 'gs://bucket/checkpoint_1'\ntrain/utils.DatasetConfig.pack = True\n"
    )
    return ["lint", "noted.gin", EMBEDDED]


WARNING = "noted.gin:7: warning GIN02: nothing reads the macro TYPO = 100"
NOTE = "noted.gin:10: note GIN06: no reference opens the scope train, "


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_notes_are_quiet_unless_they_are_asked_for(noted: list[str], harness: Any, option: str) -> None:
    out = harness(0, *noted).out
    assert WARNING in out
    assert NOTE not in out
    assert out.endswith("; 1 note, -v shows it\n")
    assert NOTE in harness(0, *noted, option).out


def test_formats_for_programs_always_have_the_notes(noted: list[str], harness: Any) -> None:
    document = json.loads(harness(0, *noted, "--format", "json").out)
    assert [(f["code"], f["file"], f["line"], f["severity"]) for f in document["findings"]] == [
        ("GIN02", "noted.gin", 7, "warning"),
        ("GIN06", "noted.gin", 10, "note"),
    ]
    (run,) = json.loads(harness(0, *noted, "--format=sarif").out)["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("GIN02", "warning"),
        ("GIN06", "note"),
    ]
    warning, notice, last = harness(0, *noted, "--format=github").out.splitlines()
    assert warning.startswith("::warning file=noted.gin,line=7,title=GIN02::nothing reads the macro TYPO")
    assert notice.startswith("::notice file=noted.gin,line=10,title=GIN06::no reference opens the scope train")
    assert last.startswith("1 passed, 1 warning in ")


def test_json_says_where_each_binding_comes_from(noted: list[str], harness: Any) -> None:
    document = json.loads(harness(0, *noted, "--json", "--gin.DROPOUT_RATE=0.5").out)
    bindings = {bound["name"]: bound for bound in document["runs"][0]["bindings"]}
    rate = bindings["DROPOUT_RATE"]
    assert (rate["value"], rate["file"], rate["line"], rate["included_from"]) == ("0.5", "--gin bindings", 1, [])
    *_, last = rate["overridden"]
    assert (last["value"], last["file"], last["line"]) == ("0.0", "noted.gin", 8)
    pack = bindings["train/utils.DatasetConfig.pack"]
    assert (pack["configurable"], pack["value"], pack["overridden"]) == ("t5x.utils.DatasetConfig", "True", [])


@pytest.mark.parametrize("form", ["json", "sarif", "github", "junit", "text"])
def test_output_writes_a_file_and_keeps_the_text(noted: list[str], folder: Path, harness: Any, form: str) -> None:
    out = harness(0, *noted, "--format", form, "--output", "report", "--color=always").out
    written = (folder / "report").read_text()
    assert "\x1b[33mwarning\x1b[0m \x1b[1mGIN02\x1b[0m: nothing reads the macro TYPO" in out
    assert "\x1b" not in written
    begin = {"text": WARNING, "github": "::warning file=noted.gin", "junit": 'value="GIN02 noted.gin:'}
    assert begin[form] in written if form in begin else "runs" in json.loads(written)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("gone/report", "gone/report: there is no folder gone"),
        (".", ". is a folder: name a file in it"),
        ("noted.gin", "noted.gin is a gin file, which the report would replace: name another"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(
    noted: list[str], harness: Any, file: str, message: str
) -> None:
    out, err = harness(2, *noted, "--output", file)
    assert out == ""
    assert f"argument --output: {message}\n" in err


def test_an_output_that_fails_late_loses_no_report(
    noted: list[str], harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Path, *_args: object, **_kwargs: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    out, err = harness(2, *noted, "--output", "report")
    assert WARNING in out
    assert err == "t5x-harness: --output report: No space left on device\n"


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "junit"])
def test_the_step_summary_is_added_to_in_every_format(
    noted: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert main([*noted, "--format", form]) == 0
    summary = (folder / "summary.md").read_text()
    assert summary.startswith("### t5x-harness\n")
    assert "| ⚠️ warning | GIN02 | noted.gin:7 | nothing reads the macro TYPO = 100 |" in summary
    assert "| note | GIN06 | noted.gin:10 |" in summary


@pytest.mark.parametrize("command", ["lint", "plan", "run"])
def test_help_teaches_by_examples_and_the_formats(command: str, harness: Any) -> None:
    out = harness(0, command, "--help").out
    formats = ("--format {text,json,sarif,github,junit}", "--output FILE", "-v, --verbose")
    for text in (*formats, f"t5x-harness {command} ", "examples:", "exit status: 0"):
        assert text in out
    assert ("$GITHUB_STEP_SUMMARY" in out) is (command == "lint")


def test_without_a_command_the_help_is_shown_and_2(harness: Any) -> None:
    out = harness(2).out
    for command in ("lint", "plan", "run", "exec", "doctor"):
        assert f"\n    {command} " in out


def test_a_command_of_another_module_gets_its_arguments_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr("t5x_harness.commands.exec.main", lambda parsed: taken.append(parsed.command) or 7)
    assert main(["exec", "--", "python", "-c", "pass", "--gin.X=1"]) == 7
    assert taken[0][-1] == "--gin.X=1"


def test_lint_imports_nothing_heavy_and_starts_no_process(folder: Path) -> None:
    program = (
        "import sys, subprocess\n"
        "subprocess.Popen = None\n"
        "from t5x_harness.commands.main import main\n"
        "status = main(['lint', 'run.gin', '--t5x-runtime=embedded'])\n"
        "heavy = {'jax', 'tensorflow', 'numpy', 'seqio', 't5x', 'flax', 'absl', 'optax', 'pytest'} & set(sys.modules)\n"
        "heavy |= {'importlib.metadata', 'email', 'socket', 'random'} & set(sys.modules)\n"
        "sys.exit(f'status {status}, imported {heavy}' if status or heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_run_that_lint_stops_leaves_nothing_behind(
    folder: Path, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Worker:
        refusal = "why it is not"

        def warm(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr("t5x_harness.runs.pool.worker_for", lambda runtime, **given: Worker())
    monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (folder / "temporary").mkdir()
    out, err = harness(1, "run", "run.gin", EMBEDDED, "--gin.TRAIN_STEPS=1.5")
    assert " resolve, plan, train, eval, infer: not run, because lint failed\n" in out
    assert "kept in" not in err
    assert f"t5x-harness: {WARM_WORKER_UNUSED}: why it is not\n" in err
    assert list((folder / "temporary").iterdir()) == []
