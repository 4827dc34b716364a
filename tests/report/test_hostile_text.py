"""Text from users' files is shown in every format of a report, and acts in none."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_reports import WRITERS, report_saying

from t5x_harness.findings.printable import printable, printable_json
from t5x_harness.report import json as json_report
from t5x_harness.report import junit
from t5x_harness.spec import (
    Location,
)

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


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_no_text_acts_in_any_format(form: str, text: str) -> None:
    written = WRITERS[form](report_saying(text))
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
    report = report_saying(text)
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
