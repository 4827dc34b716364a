"""The examples and links of README and docs are run, parsed, read or followed here, so that they stay true."""

import re
import shlex
from pathlib import Path

import pytest
from page_blocks import blocks, commands_in, parsed

from t5x_harness.commands.arguments import specs_of
from t5x_harness.commands.main import COMMANDS
from t5x_harness.gin.reading import program_of
from t5x_harness.lint.stage import lint_program
from t5x_harness.settings.project import load_project
from t5x_harness.spec import Finding, Mode, Outcome, RunSpec


@pytest.fixture(scope="module")
def readme(pages: dict[str, str]) -> str:
    return pages["README.md"]


def commands(text: str) -> list[list[str]]:
    """Returns the commands of all shell blocks as words; `&&` separates two commands."""
    lines = [line for block in blocks(text, "shell") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [shlex.split(part) for line in words for part in shlex.join(line).split(" '&&' ")]


@pytest.mark.journey
def test_the_own_test_passes(readme: str, pytester: pytest.Pytester, imported: None) -> None:
    (block,) = blocks(readme, "python")
    name = block.splitlines()[0].removeprefix("# ")
    assert sum(bool(line.strip()) for line in block.splitlines()[1:]) <= 20
    (pytester.path / name).write_text(block)
    result = pytester.runpytest_subprocess("-m", "smoke", "--strict-markers", "--t5x-runtime=embedded", name)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["finetune_classify *ok *ok *ok *ok *ok *ok *"])


def test_the_two_commands_are_what_the_ci_runs(readme: str, repository: Path) -> None:
    (block,) = [block for block in blocks(readme, "shell") if "tox" in block]
    shown = commands(f"```shell\n{block}```\n")
    assert shown == [
        ["python", "-m", "pip", "install", "tox"],
        ["tox", "run", "-e", "smoke"],
        ["tox", "run", "-e", "tests"],
    ]
    lines = (repository / ".ci" / "run").read_text().splitlines()
    run = [[word for word in shlex.split(line, comments=True) if word != "--quiet"] for line in lines]
    assert [words for words in run if words in shown] == shown


def test_the_first_screen_is_the_users(readme: str) -> None:
    """The page shows installation, a config, the output and a test before it describes this checkout."""
    order = ["pip install", "pytest -m smoke", "```console", "```python", "tox run -e smoke", "tox run -e tests"]
    places = [readme.index(part) for part in order]
    assert places == sorted(places)
    assert readme[: places[-1]].count("\n") < 80


def test_every_command_that_a_page_shows_parses(
    pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "buckets").mkdir()
    monkeypatch.chdir(tmp_path)
    shown = {name: commands_in(text, "t5x-harness") for name, text in pages.items()}
    assert sum(map(len, shown.values())) > 60
    for name, lines in shown.items():
        files = {getattr(parsed(line), "env_file", None) for line in lines}
        assert set(re.findall(r"^(?:\$ )?\. \./(\S+)$", pages[name], re.MULTILINE)) <= files, name
    assert {line.split()[1] for line in shown["README.md"]} == {*COMMANDS}
    for line in shown["README.md"]:
        if line.split()[1] in ("lint", "plan", "run"):
            assert [spec.gin_files for spec in specs_of(parsed(line), tmp_path)] == [(line.split()[2],)]


def test_pytest_options_and_ini_values_exist(pages: dict[str, str], pytester: pytest.Pytester) -> None:
    help_text = pytester.runpytest_subprocess("--help").stdout.str().replace("--junit-xml", "--junitxml")
    named = {
        name
        for text in pages.values()
        for name in re.findall(r"`(--t5x-[\w-]+|t5x_(?:gin_files|bindings|search_paths|slice))", text)
    }
    words = [
        word
        for text in pages.values()
        for line in commands_in(text, "pytest")
        for word in shlex.split(line, comments=True)
    ]
    named |= {word.partition("=")[0] for word in words if word.startswith("--t5x")}
    assert len(named) > 20
    assert [name for name in named if name not in help_text] == []


def test_the_project_table_is_read_and_its_run_lints(readme: str, tmp_path: Path) -> None:
    (block,) = blocks(readme, "toml")
    (tmp_path / "pyproject.toml").write_text(block)
    (tmp_path / "configs").mkdir()
    (tmp_path / "tests" / "buckets").mkdir(parents=True)
    (tmp_path / "configs" / "my_finetune.gin").write_text(
        "include 't5x/configs/runs/finetune.gin'\n"
        "MIXTURE_OR_TASK_NAME = 'my_task'\n"
        "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\n"
        "INITIAL_CHECKPOINT_PATH = 'gs://bucket/t5_1_1_small/checkpoint_1000000'\n"
        "TRAIN_STEPS = 1_000_000\n"
    )
    project = load_project(tmp_path)
    assert (project.layer["slice"], project.gin_files) == ("v3-32", ("configs/runs/*.gin",))
    assert (project.layer["search_paths"], project.python_path) == (
        (str(tmp_path / "configs"),),
        (str(tmp_path / "src"),),
    )
    (run,) = project.runs
    assert run.name == "small_finetune"

    def result_of(bindings: tuple[str, ...]) -> tuple[Outcome, tuple[Finding, ...]]:
        spec = RunSpec(
            run.gin_files, (*bindings, "DROPOUT_RATE = 0.1"), mode=Mode.TRAIN, runtime="embedded", cwd=str(tmp_path)
        )
        result = lint_program(program_of(spec))
        return result.outcome, result.errors

    assert result_of(run.layer["bindings"]) == (Outcome.PASSED, ())
    assert result_of(())[0] is Outcome.FAILED  # the binding in the table makes it right: CKP02


def test_links_lead_somewhere(repository: Path) -> None:
    pages = [*sorted(repository.glob("*.md")), *sorted((repository / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            path = page if not file else (page.parent / file).resolve()
            assert path.is_file(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}


def test_every_page_is_linked_from_the_index_and_the_index_from_the_readme(readme: str, repository: Path) -> None:
    index = (repository / "docs" / "README.md").read_text()
    for page in (repository / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name
    assert "](docs/README.md)" in readme


def test_the_output_shown_has_the_shape_of_a_report(readme: str) -> None:
    (block,) = blocks(readme, "console")
    lines = block.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("run "))
    assert lines[head].split() == "run mode slice lint resolve plan train eval infer time findings".split()
    assert lines[head + 1].split()[-10:-3] == ["2", "ok", "ok", "ok", "ok", "ok", "ok"]
    assert "@@" not in readme
