"""Modules find T5X's own command line in sys.argv, and a module that cannot read it fails here as it does in T5X."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from absl import flags
from local_run import LocalRun

from t5x_harness.execute.command_line import ProgramEnded, as_t5x
from t5x_harness.spec import Mode, Outcome, RunSpec, Stage

SPEC = RunSpec(("a.gin", "b.gin"), ("X = 1",), ("configs", "more"), mode=Mode.EVAL)


def test_the_words_are_those_of_t5x_while_a_stage_works() -> None:
    before = sys.argv
    with as_t5x(SPEC, "/lib/t5x"):
        assert sys.argv == [
            "/lib/t5x/main.py",
            "--run_mode=eval",
            "--gin_file=a.gin",
            "--gin_file=b.gin",
            "--gin_bindings=X = 1",
            "--gin_search_paths=configs,more",
        ]
    assert sys.argv is before


def test_absls_flags_have_the_values_of_the_run_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    found = flags.FlagValues()
    flags.DEFINE_multi_string("gin_file", None, "Files.", flag_values=found)
    flags.DEFINE_list("gin_search_paths", ["."], "Folders.", flag_values=found)
    flags.DEFINE_string("of_the_user", "its default", "Another.", flag_values=found)
    monkeypatch.setattr(flags, "FLAGS", found)
    with as_t5x(SPEC, "/lib/t5x"):
        assert (found.gin_file, found.gin_search_paths) == (["a.gin", "b.gin"], ["configs", "more"])
        assert found.of_the_user == "its default"
    with as_t5x(RunSpec(("c.gin",), search_paths=("own",)), "/lib/t5x"):  # another run in the same process
        assert (found.gin_file, found.gin_search_paths) == (["c.gin"], ["own"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("flags.DEFINE_string('own', 'x', '')\nassert flags.FLAGS.own == 'x'\nassert flags.FLAGS.gin_file", None),
        ("flags.DEFINE_string('gin_file', None, '')", "DuplicateFlagError: The flag 'gin_file' is defined twice."),
    ],
)
def test_a_module_may_have_flags_but_not_t5x_s(
    backend: Callable[..., LocalRun], train_text: str, tmp_path: Path, text: str, error: str | None
) -> None:
    """As under ``app.run``, flags defined by a task module have their defaults, and T5X's names are taken."""
    (tmp_path / "flag_tasks.py").write_text(f"from absl import flags\n\n{text}\n")
    result = backend(train_text, extra="\nimport flag_tasks\n").stage(Stage.RESOLVE)
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if error is None:
        assert errors == []
    else:
        assert error in errors[0].message
        assert errors[0].location is not None
        assert (errors[0].location.file, errors[0].location.line) == ("flag_tasks.py", 3)


def test_what_ends_the_program_is_an_error() -> None:
    with pytest.raises(ProgramEnded) as error, as_t5x(SPEC, "/lib/t5x"):
        argparse.ArgumentParser().parse_args()
    assert str(error.value) == (
        "it ends the program with status 2, and T5X's, too, whose flags are in sys.argv, such as --gin_file=a.gin: "
        "argparse does not know them; call parse_known_args, or parse in a function of your own program"
    )
    with pytest.raises(ProgramEnded, match=r"with status 'no', .* such as --gin_file=a.gin$"), as_t5x(SPEC, "/t5x"):
        sys.exit("no")


def test_a_module_that_parses_arguments_at_its_import(
    backend: Callable[..., LocalRun], train_text: str, tmp_path: Path
) -> None:
    (tmp_path / "parsing_tasks.py").write_text("import argparse\n\nargparse.ArgumentParser().parse_args()\n")
    result = backend(train_text, extra="\nimport parsing_tasks\n").stage(Stage.RESOLVE)
    assert result.outcome is Outcome.FAILED
    (finding,) = (finding for finding in result.findings if finding.severity == "error")
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("parsing_tasks.py", 3)
    assert "it ends the program with status 2, and T5X's, too, whose flags are in sys.argv" in finding.message
