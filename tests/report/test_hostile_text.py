"""Text from users' files is shown in every format of a report, and acts in none."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_reports import passed

from t5x_harness.findings.printable import printable, printable_json
from t5x_harness.report import github, junit, sarif, terminal
from t5x_harness.report import json as json_report
from t5x_harness.report.report import Report
from t5x_harness.report.terminal import render_brief
from t5x_harness.rulebook.pages import rule_descriptors
from t5x_harness.spec import (
    Assignment,
    BoundValue,
    Change,
    Edit,
    FactTable,
    Finding,
    Location,
    Measure,
    Mode,
    Outcome,
    Reason,
    RunResult,
    RunSpec,
    Severity,
    Stage,
    StageResult,
)

WRITERS: dict[str, Callable[[Report], str]] = {
    "text": terminal.render,
    "text with everything": lambda report: terminal.render(report, facts=True, notes=True, width=60),
    "quietly": terminal.render_quietly,
    "in brief": lambda report: render_brief(report, width=80),
    "failures": lambda report: "\n".join(map(terminal.run_failure, report.results)),
    "failures in a line": lambda report: "\n".join(
        terminal.failure_in_a_line(stage, None) for result in report.results for stage in result.stages
    ),
    "github": github.render,
    "summary": github.markdown,
    "json": json_report.render,
    "sarif": lambda report: sarif.render(report, rule_descriptors),
    "junit": junit.render,
}
_LOGS = frozenset(WRITERS) - {"summary"}
"""The formats that are printed to the log of a workflow; the summary is a file."""

HOSTILE = (
    "::stop-commands::x",
    " \xa0::add-mask::a",
    "a\n::add-mask::b",
    "a\r::add-mask::b",
    "##[add-mask]c",
    "x ##vso[task.setvariable variable=PATH]d",
    "\x1b]0;title\x07\x1b[2J",
    "\x9b31m",
    "\u202egnp.exe",
    "a\u2028::add-mask::b",
    "\ud800\udcff",
    "\ufffe\uffff\x00]]><x a='\"&",
    ":",
    "\u200b::add-mask::zero width",
)

_PARTS = st.sampled_from((*HOSTILE, " ", "::", "##[", "\n", "\t", "\r\n", "a", "'", "%0A", "\\"))
texts = st.lists(_PARTS | st.text(max_size=3), min_size=1, max_size=4).map("".join)


def report_of(text: str) -> Report:
    """Returns a report that has a text in every place that can have text from a user's file."""
    place = Location(text, 3, (Location(text, 1),))
    finding = Finding(
        "GIN01", Severity.ERROR, Stage.LINT, f"{text} is {text}", place, text, text, (Edit(text, 1, 1, f"{text}\n"),)
    )
    warning = dataclasses.replace(finding, severity=Severity.WARNING, location=Location(f"folder/{text}", 1))
    failed = StageResult(Stage.LINT, Outcome.FAILED, (finding,), not_checked=(text,), log_tail=f"{text}\n{text}")
    crashed = StageResult(Stage.TRAIN, Outcome.FAILED, log_tail=f"{text}\n{text}")
    below = dataclasses.replace(failed, findings=(dataclasses.replace(finding, location=warning.location),))
    good = passed(
        Stage.PLAN,
        1.0,
        findings=(warning,),
        facts=(("mesh", text), ("a table", f"{text}\n{text}")),
        tables=(FactTable("arrays", ("name",), ((text,),)),),
        changes=(Change(text, text, text, Reason.SHRINK), Change(text, text, text, Reason.GIVEN)),
        measures=(Measure("loss", 1.0, of=text, step=1),),
        not_checked=(text,),
    )
    spec = RunSpec((text,), (text,), mode=Mode.TRAIN, runtime="embedded")
    bound = BoundValue(text, text, Assignment(text, place), (Assignment(text, place),))
    results = (
        RunResult(spec, (failed, good), standins=(text, text), bindings=(bound,), log=text, model_dir=text),
        RunResult(dataclasses.replace(spec, slice="v4-8"), (crashed, below), log=text),
        RunResult(
            dataclasses.replace(spec, gin_files=(f"folder/{text}.gin",)),
            (good, passed(Stage.EVAL, 1.0, measures=(Measure("accuracy", 1.0, of=text),))),
        ),
    )
    return Report(results)


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_no_text_acts_in_any_format(form: str, text: str) -> None:
    written = WRITERS[form](report_of(text))
    written.encode("utf-8")  # fails for half of a surrogate pair
    assert all(c.isprintable() or c in "\n\t" for c in written)
    for line in written.split("\n"):
        begins = re.match(r"::(\w[\w-]*)(?: \w+=[^:]*)?::", line.strip())
        allowed = ("error", "warning", "notice") if form == "github" else ()
        assert begins is None or begins[1] in allowed, line
        assert form not in _LOGS or not re.search(r"##\w*\[", line), line


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_documents_stay_well_formed(text: str) -> None:
    report = report_of(text)
    whole = json.loads(json_report.render(report))
    assert whole == json.loads(json.dumps(json_report.document(report)))  # programs get the text of the files
    suite = ElementTree.fromstring(junit.render(report))
    assert len(list(suite.iter("testcase"))) == 6


@given(texts)
@example("::a ::b")
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    assert printable(Location(text, 1)).file == printable(Location(printable(Location(text, 1)).file, 1)).file
    assert "\n" not in printable(Location(text, 1)).file


@pytest.mark.parametrize(
    "text", ["a: b", "größe 日本語 😀", "utils.X::y", "a::b", "two\nlines\tand", "# ##", "x##y", ""]
)
def test_clean_text_stays(text: str) -> None:
    assert printable(text) is text or printable(text) == text


def test_escapes_are_pythons() -> None:
    assert printable("\x1b[2J\u202e\ud800") == r"\x1b[2J\u202e\ud800"
    assert printable("::x ::y ##[z]") == r"\x3a:x \x3a:y #\x23[z]"
    assert printable("a\r\nb\rc") == "a\nb\nc"
    assert printable(Location("a\nb", 1)).file == r"a\nb"
    assert json.loads(printable_json('{"##[x]": "##vso[y]"}')) == {"##[x]": "##vso[y]"}
