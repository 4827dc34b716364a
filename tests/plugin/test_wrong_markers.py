"""Wrong arguments of every marker: each fails its test in one line, at the marker's line, before anything is run.

The arguments are generated from the markers' signatures.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from wrong_values import python_of, wrong_objects

from t5x_harness.promotion.marker import MARKERS, TpuResources
from t5x_harness.settings.auxiliary import MARKER, Auxiliary

NAMES = {re.split(r"\W", line)[0] for line in (*MARKERS, MARKER)}
BASES = {"tpu": (TpuResources, {}), "auxiliary": (Auxiliary, {"gin": "eval.gin", "mixtures": ["my_task"]})}
"""The markers whose arguments are the fields of a value, and arguments that they need."""


WRONG_FAULTS = {
    "during": (*wrong_objects("str"), "lunch"),
    "how": (*wrong_objects("str"), "sigkill"),
    "at_step": (True, -1, 0.5, "3", [3]),
    "grace": (True, -1, math.nan, math.inf, "5", [5]),
    "host": (True, -1, "0", 1.0),
    "on": (4, "", ["v4-8"]),
}


def wrong_fields() -> Iterator[tuple[str, str, list[Any]]]:
    """Yields each marker with fields, a field of it, and the objects that this field does not take."""
    for name, (kind, _) in BASES.items():
        for field in dataclasses.fields(kind):
            # A text already in modules that postpone annotations.
            type_ = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
            type_ = "Paths" if field.name == "gin" else type_.removeprefix("collections.abc.")
            yield name, field.name, [*wrong_objects(type_, takes_zero=type(field.default) is int)]


def wrong_markers() -> Iterator[tuple[str, str, str]]:
    """Yields the text of markers' decorators, the marker's name, and what the message has to show."""
    for name in ("smoke", "aot", "network"):
        yield f"@pytest.mark.{name}(8)", name, f"{name}(8)"
        yield f"@pytest.mark.{name}(reason='x')", name, f"{name}(reason='x')"
    for value in (*wrong_objects("str"), "v3-9", "v3:0x4", "v3-99999999999999999999", "8"):
        yield f"@pytest.mark.slice(name={python_of(value)})", "slice", repr(value)
    for text in ("", "8", "'v3-8', 'v3-8'", "nam='v3-8'", "'v3-8', name='v3-8'"):
        expected = f"use @pytest.mark.slice('v3-8'), one slice by name; not slice({text})"
        yield f"@pytest.mark.slice({text})", "slice", expected
    yield "@pytest.mark.slice('v3-8')\n@pytest.mark.slice('v3-32')", "slice", "name='v3-32' and name='v3-8'"
    for value in (*wrong_objects("str"), "both"):
        yield f"@pytest.mark.slice('v4-16', hosts={python_of(value)})", "slice", f"one or emulated, not {value!r}"
    for field, values in WRONG_FAULTS.items():
        for value in values:
            yield f"@pytest.mark.preempt({field}={python_of(value)})", "preempt", repr(value)
    yield "@pytest.mark.preempt(step=3)", "preempt", "there is no 'step'"
    yield "@pytest.mark.preempt('save')", "preempt", "name the arguments"
    for at, (name, field, values) in enumerate(wrong_fields()):
        value = values[at % len(values)]
        given = ", ".join(f"{key}={python_of(each)}" for key, each in {**BASES[name][1], field: value}.items())
        yield f"@pytest.mark.{name}({given})", name, repr(value)
        yield f"@pytest.mark.{name}({field[:-1]}_=8)", name, f"no argument '{field[:-1]}_'"
    text = "arguments are given by name, as accelerator_type='TPU_V3'; not 'TPU_V3'"
    yield "@pytest.mark.tpu('TPU_V3')", "tpu", text
    yield "@pytest.mark.tpu(steps=1)\n@pytest.mark.tpu(steps=2)", "tpu", "steps=2 and steps=1"
    for text in ("", "'e.gin'", "'e.gin', ['a'], 0", "mixtures=['a']", "'e.gin', ['a'], gin='e.gin'"):
        yield f"@pytest.mark.auxiliary({text})", "auxiliary", "auxiliary"


def test_each_value_of_each_argument_is_refused_in_one_line() -> None:
    wrong = []
    for name, field, values in wrong_fields():
        kind, given = BASES[name]
        for value in values:
            message = ""
            try:
                kind(**{**given, field: value})
            except ValueError as error:
                message = str(error)
            if not message.startswith(field) or repr(value) not in message or "\n" in message:
                wrong.append((field, value, message))
    assert not wrong, "\n".join(map(ascii, wrong))


@pytest.mark.parametrize("how", [(), ("-m", "tpu", "--t5x-tpu-dry-run")], ids=["here", "promoted"])
def test_a_wrong_marker_fails_its_test_at_its_line(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    markers = [*wrong_markers()]
    assert {name for _, name, _ in markers} == NAMES
    lines = ["import pytest"]
    expected = {}
    for number, (decorators, name, shown) in enumerate(markers):
        expected[f"test_{number}"] = len(lines) + 2, decorators, name, shown
        lines += ["", *decorators.splitlines(), f"def test_{number}(t5x_run):", "    assert False, 'it was run'"]
    pytester.makepyfile(test_it="\n".join(lines))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--junitxml={tmp_path}/report.xml", *how)
    tests = ElementTree.parse(tmp_path / "report.xml").getroot().findall(".//testcase")
    wrong = []
    for test in tests:
        line, decorators, name, shown = expected[test.attrib["name"]]
        (error,) = test.findall("error") or [ElementTree.Element("error")]
        message = error.attrib.get("message", "")
        parts = (f"test_it.py:{line}: ", f"@pytest.mark.{name}", shown)
        if "\n" in message or not all(part in message for part in parts):
            wrong.append((decorators, message))
    assert not wrong, "\n".join(map(ascii, wrong))
    assert len(tests) == sum(name == "tpu" or not how for _, name, _ in markers)
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*where: project*")  # as a job that would be sent is shown
    written = [path.name for path in pytester.path.iterdir() if not path.name.startswith(("runpytest-", "std"))]
    assert written == ["test_it.py"]


def test_a_wrong_fault_of_a_call_fails_the_test_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_call(t5x_run):\n    t5x_run('train.gin', preempt='lunch')\n")
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["t5x_run: preempt: during must be one of step, save, commit, eval, infer, *"])
    done.stdout.no_fnmatch_line("*Traceback*")
