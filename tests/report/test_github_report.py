"""The output for a GitHub workflow: commands that GitHub parses back to the original text, and a Markdown page."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import BAD, GOOD, NOTE, report_of

from t5x_harness.findings.printable import printable
from t5x_harness.report.github import append_step_summary, command, markdown, render
from t5x_harness.report.report import Report, SourceLine
from t5x_harness.spec import Finding, Location, Measure, Outcome, Severity, Stage

Lint = Callable[..., Report]


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Reads a command by GitHub's own rules: a colon ends the properties, a comma each of them; then it decodes."""
    match = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert match is not None, line
    name, properties, message = match.groups()
    pairs = (pair.split("=", 1) for pair in properties.split(","))
    return name, {key: decoded(value, ":,") for key, value in pairs}, decoded(message, "")


def decoded(text: str, more: str) -> str:
    for character in f"{more}\n\r%":
        text = text.replace(f"%{ord(character):02X}", character)
    return text


@given(st.text(), st.text(min_size=1), st.integers(1, 10**6), st.text())
def test_any_text_is_read_back_as_it_is_shown(message: str, file: str, line: int, title: str) -> None:
    text = command("error", message, SourceLine(file, line), title=title)
    assert "\n" not in text
    assert "\r" not in text
    assert parsed(text) == (
        "error",
        {"file": printable(file), "line": str(line), "title": printable(title)},
        printable(message),
    )


def test_what_is_escaped() -> None:
    text = command("warning", "100%,\r\na: b", SourceLine("a,b:c%.gin", 3), title="x: y, z")
    assert text == "::warning file=a%2Cb%3Ac%25.gin,line=3,title=x%3A y%2C z::100%25,%0Aa: b"
    assert command("notice", "m", None, title="t") == "::notice title=t::m"


def test_each_severity_has_its_command_at_its_line(lint: Lint) -> None:
    report = lint("run.gin")
    (result,) = report.results
    stage = dataclasses.replace(result.stages[0], findings=(*result.stages[0].findings, NOTE))
    report = Report((dataclasses.replace(result, stages=(stage,)),))
    *lines, last = render(report).splitlines()
    found = [parsed(line) for line in lines]
    assert [(name, properties) for name, properties, _ in found] == [
        ("error", {"file": "my configs/deep/base.gin", "line": "3", "title": "GIN09"}),
        ("warning", {"file": "my configs/run.gin", "line": "3", "title": "GIN02"}),
        ("notice", {"file": "my configs/run.gin", "line": "1", "title": "GIN06"}),
    ]
    message = found[0][2].splitlines()
    assert message[0].startswith("TRAIN_STEPS = 1.5 is a float")
    assert message[1] == "included from my configs/run.gin:2"
    assert message[2].startswith("fix: ")
    assert found[2][2] == "--gin bindings:2: nothing opens the scope y"
    assert last.startswith("1 failed, 1 error, 1 warning in ")


def test_a_stage_that_failed_without_a_finding_is_an_error_too(folder: Path) -> None:
    report = report_of(stage=Stage.TRAIN, log_tail="last words", cwd=str(folder))
    name, properties, message = parsed(render(report).splitlines()[0])
    assert (name, properties) == ("error", {"file": "my configs/run.gin", "line": "1", "title": "run: train"})
    assert message.endswith("last words")


@pytest.mark.parametrize("environment", [".venv/lib/python3.11/site-packages", "env/lib/python3/dist-packages"])
def test_what_is_installed_in_the_repository_is_shown_at_the_users_line(folder: Path, environment: str) -> None:
    installed = folder.parent / environment / "t5x" / "configs" / "runs" / "pretrain.gin"
    installed.parent.mkdir(parents=True)
    installed.write_text("\n" * 20)
    location = Location(str(installed), 17, (Location("run.gin", 2),))
    finding = Finding("GIN03", Severity.ERROR, Stage.LINT, "nothing binds it", location)
    name, properties, message = parsed(render(report_of(finding, cwd=str(folder))).splitlines()[0])
    assert (name, properties) == ("error", {"file": "my configs/run.gin", "line": "2", "title": "GIN03"})
    assert message == f"{installed}:17: nothing binds it"


def test_the_summary_page_has_losses_and_metrics() -> None:
    measures = (Measure("loss", 2.5, of="train", step=1), Measure("loss", 2.25, of="train", step=4))
    text = markdown(report_of(stage=Stage.TRAIN, outcome=Outcome.PASSED, measures=measures))
    assert "\n- run: train/loss 2.5 at step 1, 2.25 at step 4\n" in text


def test_a_green_run_is_one_line() -> None:
    assert render(Report((GOOD,))) == "1 passed in 1 min 14 s\n"


SUMMARY = """\
### t5x-harness

1 failed, 1 passed, 1 error, 1 warning in 1 min 14 s

| run | mode | slice | lint | resolve | plan | train | eval | infer | time |
|---|---|---|---|---|---|---|---|---|---|
| pretrain | train | v3-8 data 8 x model 1 | ok | ok | ok | ok | ok | ok | 1 min 14 s |
| long\\_name\\_of\\_a\\_config | eval | v4-16 | FAILED | - | - |  |  |  | 0.2 s |

| severity | code | where | what | fix | run |
|---|---|---|---|---|---|
| ❌ error | GIN09 | t5x/configs/runs/pretrain.gin:12 | TRAIN\\_STEPS = 1.0 is a float | write TRAIN\\_STEPS = 1 | \
long\\_name\\_of\\_a\\_config |
| ⚠️ warning | GIN01 | run.gin:9 | nothing reads the macro X |  | long\\_name\\_of\\_a\\_config |
| note | GIN06 | --gin bindings:2 | nothing opens the scope y |  | long\\_name\\_of\\_a\\_config |

<details><summary>not checked: 2</summary>

- access to gs://b
- resolve, plan: not run, because lint failed

</details>

"""


def test_the_summary_page() -> None:
    assert markdown(Report((GOOD, BAD))) == SUMMARY


@given(st.text(min_size=1))
def test_no_text_breaks_the_table(text: str) -> None:
    finding = Finding("GIN01", Severity.ERROR, Stage.LINT, text, Location(text, 1), fix=text)
    lines = markdown(report_of(finding)).split("\n")
    head = lines.index("| severity | code | where | what | fix | run |")
    row = lines[head + 2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 7
    assert lines[head + 3 :] == ["", ""]
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`*_\[]", row)


def test_a_page_stays_small_and_says_what_it_leaves_out() -> None:
    places = (Location("a.gin", line) for line in range(1, 501))
    text = markdown(report_of(*(Finding("GIN02", Severity.WARNING, Stage.LINT, "x", place) for place in places)))
    assert text.count("| GIN02 |") == 200
    assert "\nand 300 more findings\n" in text


def test_the_summary_is_added_to_the_file_that_the_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    environment = {"GITHUB_STEP_SUMMARY": str(file)}
    for _ in range(2):
        append_step_summary(Report((GOOD, BAD)), environment)
    assert file.read_text(encoding="utf-8") == SUMMARY * 2
    append_step_summary(Report(()), environment)
    assert file.read_text(encoding="utf-8") == SUMMARY * 2
    append_step_summary(Report((GOOD,)), {})
    assert [path.name for path in tmp_path.iterdir()] == ["summary.md"]


def test_a_summary_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_step_summary(Report((GOOD,)), {"GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert capsys.readouterr().err == (
        f"t5x-harness: $GITHUB_STEP_SUMMARY cannot be written: Is a directory: {tmp_path}\n"
    )
