"""Modules find T5X's own command line in sys.argv, and one that cannot read it fails here as it would there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import pytest

from t5x_harness.execute.command_line import ProgramEnded, as_t5x
from t5x_harness.runs.local import LocalBackend
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
    backend: Callable[..., LocalBackend], train_text: str, tmp_path: object
) -> None:
    module = f"{tmp_path}/parsing_tasks.py"
    with open(module, "w") as file:
        file.write("import argparse\n\nargparse.ArgumentParser().parse_args()\n")
    result = backend(train_text, extra="\nimport parsing_tasks\n").stage(Stage.RESOLVE)
    assert result.outcome is Outcome.FAILED
    (finding,) = (finding for finding in result.findings if finding.severity == "error")
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("parsing_tasks.py", 3)
    assert "it ends the program with status 2, and T5X's, too, whose flags are in sys.argv" in finding.message
