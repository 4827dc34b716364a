"""Findings are silenced by code or by a comment and are counted, and no other finding is silenced."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linting import RUN, TINY, Folder

from t5x_harness.findings.silencing import codes_to_silence, not_codes, split_silenced
from t5x_harness.lint.stage import lint_program
from t5x_harness.rulebook.rules import all_codes
from t5x_harness.settings.project import ProjectError, load_project
from t5x_harness.spec import Finding, Location, Outcome, Severity, Stage

UNREAD = "EMBEDDINGS = 250112"
WRONG = "BATCH_SIZE = '16'"
ABOVE = "# t5x-harness: ignore[GIN02]\n# read by a tool of ours\n\n"


@pytest.mark.parametrize(
    ("lines", "shown", "silenced"),
    [
        (f"{UNREAD}\n", 1, 0),
        (f"{UNREAD}  # t5x-harness: ignore[GIN02]\n", 0, 1),
        (f"{UNREAD}  # t5x-harness: ignore[GIN01, GIN02]\n", 0, 1),
        (f"{UNREAD}  # t5x-harness: ignore[GIN01]\n", 1, 0),
        (f"{ABOVE}{UNREAD}\n", 0, 1),
        (f"{ABOVE}OTHER = 1\n{UNREAD}\n", 1, 1),
        (f"# t5x-harness: ignore-file[GIN02]\n{UNREAD}\nOTHER = 1\n", 0, 2),
        ("include 'part.gin'\nOTHER = 1\n", 1, 1),
    ],
)
def test_a_comment_silences_its_line_the_line_below_or_its_file(
    folder: Folder, lines: str, shown: int, silenced: int
) -> None:
    folder.write({"part.gin": f"{UNREAD}  # t5x-harness: ignore[GIN02]\n"})
    result = folder.lint(RUN + lines)
    assert [f.code for f in result.findings] == ["GIN02"] * shown
    assert [f.code for f in result.silenced] == ["GIN02"] * silenced


def test_ignored_codes_are_left_out_everywhere_and_do_not_fail_the_stage(folder: Folder) -> None:
    assert folder.lint(f"{RUN}{WRONG}\n").outcome is Outcome.FAILED
    result = folder.lint(f"{RUN}{WRONG}\n", ignore=("GIN08",))
    assert (result.outcome, [f.code for f in result.silenced]) == (Outcome.PASSED, ["GIN08"])


@pytest.mark.parametrize("code", ["RUN01", "USR01"])
def test_what_broke_a_run_is_always_shown(code: str, tmp_path: Path) -> None:
    (tmp_path / "x.gin").write_text(f"A = 1  # t5x-harness: ignore[{code}]\n")
    finding = Finding(code, Severity.ERROR, Stage.TRAIN, "broke", Location("x.gin", 1))
    assert split_silenced([finding], (code,), tmp_path) == ((finding,), ())


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("GIN99", "no rule has the code 'GIN99'; did you mean GIN"),
        ("gin02", "no rule has the code 'gin02'; did you mean GIN02?"),
        ("RUN01", "RUN01 says that a run broke; it cannot be ignored, and is always shown"),
        ("nonsense", "no rule has the code 'nonsense'"),
    ],
)
def test_a_code_that_no_rule_has_is_refused(code: str, problem: str, tmp_path: Path) -> None:
    found = not_codes(["GIN02", code], all_codes)
    assert found is not None
    assert found.startswith(problem)
    (tmp_path / "pyproject.toml").write_text(f"[tool.t5x_harness]\nignore = ['{code}']\n")
    with pytest.raises(ProjectError, match=r"pyproject.toml:2: ignore: "):
        load_project(tmp_path)


def test_families_and_selected_codes() -> None:
    def known() -> tuple[str, ...]:
        return ("CKP01", "GIN01", "GIN02", "GIN03", "MSH01")

    assert codes_to_silence((), (), known) == ()
    assert codes_to_silence(("GIN", "MSH01"), (), known) == ("GIN01", "GIN02", "GIN03", "MSH01")
    assert codes_to_silence((), ("GIN02", "MSH"), known) == ("CKP01", "GIN01", "GIN03")
    assert codes_to_silence(("GIN02",), ("GIN",), known) == ("CKP01", "GIN02", "MSH01")
    assert not_codes(["GIN", "MSH01"], known) is None
    assert not_codes(["GI"], known) is not None
    assert not_codes(["RUN"], known) == "RUN says that a run broke; it cannot be ignored, and is always shown"


def test_codes_of_the_project_are_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.t5x_harness]\nignore = ['GIN02', 'MSH02']\n")
    assert load_project(tmp_path).layer["ignore"] == ("GIN02", "MSH02")


@given(
    codes=st.lists(st.sampled_from(["GIN01", "GIN02", "CKP01", "RUN01"]), max_size=6),
    ignore=st.sets(st.sampled_from(["GIN01", "GIN02", "CKP01", "RUN01"])),
)
def test_every_finding_is_either_shown_or_silenced_in_order(codes: list[str], ignore: set[str]) -> None:
    findings = [Finding(code, Severity.NOTE, Stage.LINT, str(index)) for index, code in enumerate(codes)]
    shown, silenced = split_silenced(findings, ignore, "/nowhere")
    assert sorted([*shown, *silenced], key=lambda f: int(f.message)) == findings
    assert {f.code for f in silenced} <= ignore - {"RUN01"}
    assert not {f.code for f in shown} & (ignore - {"RUN01"})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("MODEL_DIR = gs://bucket/run\n", "GIN07"),
        ("include 'not/there.gin'\n", "GIN16"),
        ("include 'run.gin'\n", "GIN32"),
    ],
)
@pytest.mark.parametrize("comment", [False, True])
def test_what_broke_the_reading_is_never_silenced(folder: Folder, text: str, code: str, comment: bool) -> None:
    """Nothing is known about the statements that were not read, so the config must not be called fine."""
    silenced = f"# t5x-harness: ignore-file[{code}]\n{RUN}{text}" if comment else f"{RUN}{text}"
    result = folder.lint(silenced, ignore=() if comment else tuple(all_codes()))
    assert result.outcome is Outcome.FAILED
    assert [finding.code for finding in result.errors] == [code]


def test_a_run_of_nothing_is_an_error_whatever_is_ignored(folder: Folder) -> None:
    program = folder.read(f"include '{TINY}'\n", ignore=tuple(all_codes()))
    assert lint_program(program).outcome is Outcome.PASSED, "no rule that was asked for has a finding"
    result = lint_program(program, begins_run=True)
    assert (result.outcome, [finding.code for finding in result.errors]) == (Outcome.FAILED, ["GIN31"])
