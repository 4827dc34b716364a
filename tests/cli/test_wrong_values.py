"""Wrong values of every option of every command: each is refused in one line, with status 2, and nothing is done.

The options are read from the parsers, so an option that is added is tested, too.
"""

import argparse
import functools
import importlib
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from wrong_values import wrong_words

from t5x_harness.commands.main import COMMANDS, main, parser_of
from t5x_harness.settings.options import RUNS
from t5x_harness.vertex.closure import closure_of

pytestmark = pytest.mark.stack  # serve imports what the emulated Google needs

CONFIG = """\
from __gin__ import dynamic_registration
import __main__ as train_script
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
MODEL_DIR = 'gs://bucket/train'
"""
PARSER_OF = functools.cache(parser_of)
"""Parsers, each of which takes longer to make than to use."""

VALID = {
    **dict.fromkeys(("lint", "plan", "run", "fit"), ("run.gin",)),
    "submit": ("run.gin", "--vertex=emulated", "--dry-run", "--no-check"),
    "auxiliary": ("run.gin", "--auxiliary_job_mixtures=my_task", "--auxiliary_job_gin_file=run.gin"),
    "convert": ("checkpoint", "--to=safetensors", "--output=new"),
    "cache": ("--output_cache_dir=cache",),
}
"""The arguments that a command needs, beside which one option is wrong."""

SHARED = {option.field for option in RUNS if len(option.commands) > 2} - {"bindings", "mode", "slice"}
"""The options of most commands, which exclude no others."""

WORK = (
    "commands.run._report_of", "commands.lint.Run", "commands.submit._submitted", "commands.auxiliary.prepare",
    "commands.fit._found", "os.execvpe", "commands.exec._with_google", "google.server.process.serve",
    "runs.pool.worker_for", "commands.doctor.diagnose", "conversion.conversion.convert", "commands.cache._cache",
)  # fmt: skip
"""Where the work of a command begins, once its arguments are found to be right."""


class Began(BaseException):
    """The command took its arguments."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.gin").write_text(CONFIG)
    (tmp_path / "pyproject.toml").touch()
    for name in ("T5X_HARNESS_VERTEX", "T5X_HARNESS_GCS_ROOT", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # some commands set it, which must end with the test

    def begin(*_args: Any, **_kwargs: Any) -> Any:
        raise Began

    for place in WORK:
        module, _, name = (place if place.startswith("os.") else f"t5x_harness.{place}").rpartition(".")
        monkeypatch.setattr(importlib.import_module(module), name, begin)
    monkeypatch.setattr("t5x_harness.aot.libtpu.is_installed", lambda: True)
    monkeypatch.setattr("t5x_harness.commands.main.parser_of", PARSER_OF)
    return tmp_path


def options_of(command: str) -> list[argparse.Action]:
    parser, _ = PARSER_OF(command)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [action for action in commands.choices[command]._actions if action.option_strings and action.dest != "help"]


def wrong_values(action: argparse.Action) -> list[str]:
    """The values that no option of this kind takes, as words of the shell."""
    if action.nargs == 0:
        return ["yes"]
    is_number = action.metavar in ("N", "SECONDS", "TIME", "PORT") and action.dest != "step"
    return wrong_words(action.choices or (), is_number=is_number, has_lines="=" in str(action.metavar))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "explain"])
def test_a_wrong_value_of_an_option_is_refused_in_one_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    before = sorted(os.walk(folder))
    answers = []
    for action in options_of(command):
        for value in wrong_values(action):
            name = action.option_strings[0]
            words = [
                command,
                *VALID.get(command, ()),
                f"{name}={value}",
                *(["--", "true"] if command == "exec" else []),
            ]
            try:
                status: Any = main(words)
            except Began:
                status = "accepted"
            shown = capsys.readouterr()
            lines = shown.err.splitlines()
            shows_value = not value or value in shown.err or ascii(value)[1:-1] in shown.err
            if status != 2 or len(lines) != 1 or name not in lines[0] or not shows_value or shown.out:
                answers.append((name, value, status, lines))
    assert not answers, "\n".join(map(ascii, answers))
    assert sorted(os.walk(folder)) == before


CANDIDATES = (
    *("1", "v3-8", "new", "X = 1", "a=1", "us-central1", "FLEX_START", "train", "run.gin"),
    *("my-name", "me@project.iam.gserviceaccount.com", "projects/1/global/networks/n", "none"),
)
"""Values one of which most options take."""


def test_options_that_exclude_or_need_each_other_are_both_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries each pair of the options that a command does not share with other commands."""
    pytest.importorskip("google.cloud.aiplatform_v1")
    monkeypatch.setattr("t5x_harness.vertex.job.closure_of", functools.cache(closure_of))
    refused: dict[str, set[tuple[str, str]]] = {}
    wrong = []

    def refusal(*words: str) -> str:
        try:
            status: Any = main(words)
        except Began:
            status = "accepted"
        lines = capsys.readouterr().err.splitlines()
        if status in ("accepted", 0):
            return ""
        if status != 2 or len(lines) != 1:
            wrong.append((words, status, lines))
        return "".join(lines)

    for command in ("lint", "submit", "fit", "convert", "cache", "exec", "serve"):
        start, end = (command, *VALID.get(command, ())), ("--", "true") if command == "exec" else ()
        given = {}
        for action in options_of(command):
            if action.dest in SHARED:
                continue
            name = action.option_strings[0]
            values = [""] if action.nargs == 0 else [f"={value}" for value in action.choices or CANDIDATES]
            word = next((f"{name}{value}" for value in values if not refusal(*start, f"{name}{value}", *end)), None)
            if word is not None:
                given[name] = word
        for (name, word), (other, another) in itertools.combinations(given.items(), 2):
            if message := refusal(*start, word, another, *end):
                refused.setdefault(command, set()).add((name, other))
                if name not in message or other not in message:
                    wrong.append(((word, another), 2, [message]))
    assert not wrong, "\n".join(map(ascii, wrong))
    diff = {(name, "--diff") for name in ("--json", "--output")}
    fragments = {(name, "--fragments") for name in ("--run_mode", "--gin_bindings")}
    assert refused["lint"] == {("--format", "--json"), ("-v", "-q"), *diff, *fragments}
    assert refused["submit"] >= {("--slice", "--accelerator")}


def test_an_option_is_given_once_or_with_one_value(harness: Any) -> None:
    with pytest.raises(Began):
        main(["lint", "run.gin", "--slice=v3-8", "--slice=v3-8"])
    with pytest.raises(Began):
        main(["lint", "run.gin", "--gin_bindings=A = 1", "--gin_bindings=A = 2"])
    with pytest.raises(Began):  # T5X's own, of which absl takes the last
        main(["run", "run.gin", "--model_dir=a", "--model_dir=b"])
    refused = harness(2, "lint", "run.gin", "--slice=v3-8", "--slice=v3-32").err
    assert "argument --slice: is given twice, as 'v3-8' and 'v3-32': leave one out\n" in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rnu", "invalid choice: 'rnu'; did you mean run?"),
        (
            "lint run.gin --format=jsom",
            "argument --format: invalid choice: 'jsom'; did you mean json? (choose from text, ",
        ),
        ("lint run.gin --gcs-rot=x", "unrecognized arguments: --gcs-rot=x; did you mean --gcs-root?"),
        ("lint run.gin --until=plan", "unrecognized arguments: --until=plan is of run, not of lint"),
        ("lint run.gin --slice=v3-8 b.gin", "'b.gin'; write all arguments that are not options together"),
        ("lint run.gin --slice=v3-9", "--slice: 'v3-9' is not a TPU slice: nearest names: v3-8"),
        ("submit run.gin --vertex=emulated --strategy=SPOTT", "--strategy 'SPOTT': did you mean SPOT?"),
        (
            "submit run.gin --vertex=emulated --image=my:image:1",
            "--image: 'my:image:1' is not an image's URI: give",
        ),
        (
            "submit run.gin --vertex=emulated --service-account=me",
            "--service-account: 'me' is not an account: give",
        ),
        ("run run.gin --tfds_data_dir=dta", "--tfds_data_dir: there is no folder dta"),
        ("serve --env-file=.", "--env-file . is a folder: name a file in it"),
        ("serve --root=run.gin", "--root run.gin is not a folder"),
        ("serve --vertex-state=memroy:", "--vertex-state: memory:, fakeredis: or redis://HOST:PORT/DB, not 'memroy:'"),
        ("fit run.gin --remat=minimum", "--remat minimum: choose of none, minimal, full"),
    ],
)
def test_what_is_meant_is_named(harness: Any, words: str, message: str) -> None:
    refused = harness(2, *words.split())
    assert message in refused.err
    assert refused.out == ""
