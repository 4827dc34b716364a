"""Where ``t5x-harness plan --plan-golden`` keeps what it compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.commands.arguments import UsageError, specs_of
from t5x_harness.commands.main import parser_of
from t5x_harness.spec import RunSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose table declares two runs of the same file."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.t5x_harness]\nplan_golden = "kept"\n'
        '[[tool.t5x_harness.runs]]\nname = "small"\ngin_files = ["run.gin"]\n'
        '[[tool.t5x_harness.runs]]\nname = "large"\ngin_files = ["run.gin"]\n'
    )
    for name in ("run.gin", "a/x.gin", "b/x.gin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def specs(folder: Path, *arguments: str, command: str = "plan") -> tuple[RunSpec, ...]:
    parser, _ = parser_of(command)
    return specs_of(parser.parse_args([command, *arguments]), folder)


def test_the_project_names_the_folder_and_each_run_has_its_file(folder: Path) -> None:
    assert [spec.settings.plan_golden for spec in specs(folder)] == [
        str(folder / "kept/small.plan"),
        str(folder / "kept/large.plan"),
    ]
    assert not any(spec.settings.plan_golden_update for spec in specs(folder))


def test_the_option_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (spec,) = specs(folder, "run.gin", "--plan-golden=one.plan", "--plan-golden-update")
    assert (spec.settings.plan_golden, spec.settings.plan_golden_update) == (str(folder / "one.plan"), True)


def test_lint_has_none(folder: Path) -> None:
    assert [spec.settings.plan_golden for spec in specs(folder, command="lint")] == [None, None]


@pytest.mark.parametrize("golden", ["one.plan", "golden"])
def test_two_runs_cannot_share_one(folder: Path, golden: str) -> None:
    with pytest.raises(UsageError) as caught:
        specs(folder, "a/x.gin", "b/x.gin", f"--plan-golden={golden}")
    text = str(caught.value)
    assert text.endswith(
        "would be the golden plan of a/x.gin and of b/x.gin; for several runs name a folder, and give each run its own "
        "name"
    )


def test_an_update_needs_something_to_update(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("")
    with pytest.raises(UsageError, match="--plan-golden-update: name the file or folder, too: --plan-golden=PATH"):
        specs(tmp_path, "run.gin", "--plan-golden-update")
