"""Wrong values of every option of pytest, ini value, variable and key: each is refused in one line that names it.

They are generated from the table of options, so an option that is added is tested, too. What the plugin does with them
when a session begins is called in this process; that pytest ends with status 4 then is tested in ``test_options.py``.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from wrong_values import toml_of, wrong_objects, wrong_toml_of, wrong_words_of

from t5x_harness.plugin.session import usage_errors
from t5x_harness.promotion.marker import TpuResources, resources_in
from t5x_harness.settings.command_line import add_option_to_pytest, layers_of, pytest_name
from t5x_harness.settings.configuration import Configuration, merged
from t5x_harness.settings.options import JOBS, RUNS, JobSettings
from t5x_harness.settings.project import load_project
from t5x_harness.settings.session import SessionSettings
from t5x_harness.spec.option import OptionForm
from t5x_harness.vertex.target import EMULATED, find_target

OPTIONS = (*RUNS, *JOBS)
Case = tuple[str, object, str]
"""A name, a wrong value of it, and the message of its refusal, which is empty if it was accepted."""


@functools.cache
def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser()
    for option in OPTIONS:
        add_option_to_pytest(option, found.add_argument, lambda *_: None)
    return found


def begin(
    folder: Path, words: Iterable[str] = (), ini: Mapping[str, Any] = {}, variables: Mapping[str, str] = {}
) -> None:
    """Reads all settings in a folder, as a session does."""
    given = vars(parser().parse_args([*words])).get
    with usage_errors():
        layers, of_jobs = (layers_of(each, given, ini.get, variables, folder, folder) for each in (RUNS, JOBS))
        project = load_project(folder)
        SessionSettings(Configuration(layers, project, folder, folder, pytest_name)).check()
        jobs = JobSettings(**merged(JOBS, of_jobs))
        resources_in(jobs.tpu or ())
        find_target(vars(jobs), variables, project.vertex, EMULATED)


def refusal(begun: Callable[[], None]) -> str:
    try:
        begun()
    except pytest.UsageError as error:
        return str(error)
    return ""


def require_refusals(cases: Iterable[Case]) -> None:
    cases = [*cases]
    assert len(cases) > 30
    wrong = [
        (name, value, message)
        for name, value, message in cases
        if name not in message
        or len(message.splitlines()) != 1
        or not (value in ("", " ", [""]) or repr(value) in message)
    ]
    assert not wrong, "\n".join(map(ascii, wrong))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_of_the_command_line(tmp_path: Path) -> None:
    require_refusals(
        (option.pytest[0], word, refusal(lambda: begin(tmp_path, [f"{name}={word}"])))  # noqa: B023
        for option in OPTIONS
        if option.form is not OptionForm.FLAG  # argparse itself refuses to give it a value
        for name in filter(None, (*option.pytest, option.old))
        for word in wrong_words_of(option)
    )
    assert [*tmp_path.iterdir()] == []


def test_of_ini_values(tmp_path: Path) -> None:
    """An empty one is not set."""
    require_refusals(
        (option.ini, word, refusal(lambda: begin(tmp_path, ini={option.ini: [word] if is_list else word})))  # noqa: B023
        for option in OPTIONS
        if option.ini
        for is_list in [option.form.is_list or option.form is OptionForm.RESOURCES]
        for word in wrong_words_of(option)[1:]
    )


def test_of_variables(tmp_path: Path) -> None:
    """An empty one is not set."""
    require_refusals(
        (option.variable, word, refusal(lambda: begin(tmp_path, variables={option.variable: word})))  # noqa: B023
        for option in OPTIONS
        if option.variable
        for word in wrong_words_of(option)[1:]
    )


def test_of_keys(tmp_path: Path) -> None:
    """The line of the key is named, too."""

    def cases() -> Iterable[Case]:
        keys = [(option.key, value) for option in OPTIONS if option.key for value in wrong_toml_of(option)]
        keys += [
            (f"tpu.{field.name}", value)
            for field in dataclasses.fields(TpuResources)
            for value in wrong_objects(str(field.type))
        ]
        for key, value in keys:
            table, _, name = f"tool.t5x_harness.{key}".rpartition(".")
            if (text := toml_of(value)) is None:
                continue
            (tmp_path / "pyproject.toml").write_text(f"[{table}]\n\n{name} = {text}\n")
            message = refusal(lambda: begin(tmp_path))
            yield name, value, message.partition(f"{tmp_path}/pyproject.toml:3: ")[2]

    require_refusals(cases())
