"""Options and ini values are checked when they are read, and messages show the form that they take."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.plugin.session import HarnessSession
from t5x_harness.settings.options import JOBS, RUNS
from t5x_harness.settings.session import SessionSettings

Run = Callable[..., pytest.RunResult]


def settings_of(config: pytest.Config) -> SessionSettings:
    return HarnessSession(config, lambda reporter, session: None).settings


def test_help_teaches_every_option(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_subprocess("--help").stdout.str()
    for word in (
        *("--t5x-runtime", "--t5x-slice", "--t5x-gin", "--t5x-full-size", "--t5x-in-process", "--t5x-timeout"),
        *("--t5x-gin-search-paths=DIR,DIR", "--gin_search_paths=DIR,DIR", "--tfds_data_dir=DIR", "--t5x-ahead=N"),
        *("--t5x-select=CODE", "--t5x-strict", "--t5x-until=STAGE", "--t5x-python-path=DIR"),
        "--t5x-github-annotations={auto,always,never}",
        *("t5x_gin_files", "t5x_bindings", "t5x_search_paths", "t5x_slice", "t5x_github_annotations"),
    ):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *((f"--t5x-timeout={n}", f"--t5x-timeout must be a positive number, not '{n}'") for n in ("0", "-3", "soon")),
        ("--t5x-ahead=all", "--t5x-ahead must be a whole number from 0 up, not 'all'"),
        ("-o t5x_ahead=all", "t5x_ahead must be a whole number from 0 up, not 'all'"),
        (
            "-o t5x_tpu_numerics=some",
            "t5x_tpu_numerics must be 1 or 0 (or on, off, true, false, yes, no), not 'some'",
        ),
        ("-o t5x_network=maybe", "t5x_network must be forbid or allow, not 'maybe'"),
        ("-o t5x_github_annotations=yes", "t5x_github_annotations must be auto, always or never, not 'yes'"),
        ("--standins=some", "--t5x-standins must be off, missing or all, not 'some'"),
        ("--t5x-standins=some", "--t5x-standins must be off, missing or all, not 'some'"),
        ("--t5x-select=GIN99", "--t5x-select: no rule has the code 'GIN99'; did you mean "),
        ("--t5x-ignore=GIN99", "--t5x-ignore: no rule has the code 'GIN99'; did you mean "),
        (
            "--t5x-plan-golden-update",
            "--t5x-plan-golden-update: name the file or folder, too: --t5x-plan-golden=PATH",
        ),
        ("--gin.BATCH_SIZE", "--gin.BATCH_SIZE: a gin binding has the form --gin.NAME=VALUE"),
        ("--gin.--gin.A=1", "--gin.--gin.A=1: --gin. stands there twice, write --gin.A=1"),
    ],
)
def test_a_value_that_is_none_is_refused(pytester: pytest.Pytester, arguments: str, message: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"^{re.escape(message)}"):
        pytester.parseconfigure(*arguments.split())


def test_pytest_shows_it_in_one_line_and_ends_with_4(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--t5x-timeout=soon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == ["ERROR: --t5x-timeout must be a positive number, not 'soon'"]


def test_t5x_s_own_flags_say_where_includes_and_data_lie(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths are unchanged if runs work in the same folder, but absolute if pytest is called elsewhere."""
    pytester.makeini("[pytest]\nt5x_search_paths = last\n")
    flags = ("--gin_search_paths=conf,models", "--gin_search_paths=gs://b/c", "--tfds_data_dir=data")
    last = str(pytester.path / "last")
    given = settings_of(pytester.parseconfig(*flags)).spec(["run.gin"])
    assert given.search_paths == ("conf", "models", "gs://b/c", last)
    assert given.settings.tfds_data_dir == "data"
    below = pytester.mkdir("below")
    monkeypatch.chdir(below)
    given = settings_of(pytester.parseconfig(*flags, f"--rootdir={pytester.path}")).spec(["run.gin"])
    assert given.search_paths == (f"{below}/conf", f"{below}/models", "gs://b/c", last)
    assert given.settings.tfds_data_dir == f"{below}/data"


OLD = {row.old: row for row in (*RUNS, *JOBS) if row.old}


def test_options_share_one_prefix_and_help_shows_no_old_name(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig()
    groups = [group for group in config._parser._groups if group.name.startswith("t5x-harness")]
    names = {name for group in groups for option in group.options for name in option.names()} - OLD.keys()
    of_t5x = {"--gin_bindings", "--gin_search_paths", "--tfds_data_dir"}
    assert len(names) > 30
    assert {name for name in names if not name.startswith("--t5x-")} == of_t5x
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    assert [old for old in OLD if f" {old}=" in shown or f" {old} " in shown] == []


def test_an_old_name_works_and_is_warned_of_once(pytester: pytest.Pytester) -> None:
    (pytester.path / "buckets").mkdir()
    pytester.makepyfile("def test_it():\n    pass\n")
    olds = ("--standins=off", "--gcs-root=buckets", "--plan-golden-update", "--plan-golden=kept/")
    spec = (settings := settings_of(pytester.parseconfig(*olds))).spec(["run.gin"])
    assert (spec.settings.standins, spec.settings.gcs_root) == ("off", str(pytester.path / "buckets"))
    kept = settings.configuration.with_golden(spec, "run").settings
    assert (kept.plan_golden, kept.plan_golden_update) == (str(pytester.path / "kept" / "run.plan"), True)
    result = pytester.runpytest_subprocess("--standins=off", "--tpu-reuse=1", "--tpu-reuse=2", "-p", "xdist", "-n0")
    result.assert_outcomes(passed=1, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*PytestDeprecationWarning: --standins is the old name of --t5x-standins, and will be removed: use "
            "--t5x-standins",
            "*PytestDeprecationWarning: --tpu-reuse is the old name of --t5x-tpu-reuse, and will be removed: use *",
        ]
    )
    pytester.runpytest_subprocess("--t5x-standins=off").assert_outcomes(passed=1, warnings=0)


def test_codes_strictness_and_folders_of_modules_reach_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.t5x_harness]\nselect = ['GIN', 'CKP']\npython_path = ['src']\nstrict = true\n")
    spec = settings_of(pytester.parseconfig("--t5x-ignore=CKP", "--t5x-python-path=lib")).spec(["run.gin"])
    assert "GIN01" not in spec.settings.ignore
    assert {"CKP01", "MSH02"} <= set(spec.settings.ignore)
    assert spec.settings.strict
    assert spec.python_path == tuple(f"{pytester.path}{folder}" for folder in ("/lib", "/src", ""))
    spec = settings_of(pytester.parseconfig("--t5x-select=MSH02")).spec(["run.gin"])
    assert "MSH02" not in spec.settings.ignore
    assert "GIN01" in spec.settings.ignore


def test_options_come_before_what_a_declared_run_says(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        "[tool.t5x_harness]\nsearch_paths = ['all']\nbindings = ['A = 1']\nslice = 'v2-8'\n"
        "[[tool.t5x_harness.runs]]\nname = 'one'\ngin_files = ['run.gin']\nslice = 'v4-8'\nsearch_paths = ['own']\n"
        "bindings = ['A = 2']\n"
    )
    folders = (f"{pytester.path}/own", f"{pytester.path}/all")
    (declared,) = settings_of(pytester.parseconfig()).declared_runs()
    assert (declared.spec.slice, declared.spec.bindings) == ("v4-8", ("A = 1", "A = 2"))
    assert declared.spec.search_paths == folders
    flags = ("--t5x-slice=v3-8", "--gin_search_paths=mine", "--gin.A=3")
    (given,) = settings_of(pytester.parseconfig(*flags)).declared_runs()
    assert (given.spec.slice, given.spec.bindings) == ("v3-8", ("A = 1", "A = 2", "A = 3"))
    assert given.spec.search_paths == ("mine", *folders)


def test_gin_bindings_are_given_as_to_t5x(pytester: pytest.Pytester) -> None:
    flags = ("--gin.BATCH_SIZE=64", "--t5x-gin=A = 1", "--gin_bindings=B = 2", "--gin.models/f.x='a = b'")
    given = settings_of(pytester.parseconfig(*flags)).spec(["run.gin"])
    assert given.bindings == ("BATCH_SIZE = 64", "A = 1", "B = 2", "models/f.x = 'a = b'")


def test_the_fix_of_an_include_beside_its_file_is_taken_by_pytest(folder: Path, run: Run) -> None:
    (folder / "conf").mkdir()
    for name in ("models", "train.gin"):
        (folder / name).rename(folder / "conf" / name)
    failed = run("conf/train.gin::lint")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*it lies beside the file that includes it: pass --gin_search_paths=conf"])
    run("conf/train.gin::lint", "--gin_search_paths=conf").assert_outcomes(passed=1)
