"""A field with an option can be set everywhere that its declaration names, without another line of code."""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.settings import command_line, project
from t5x_harness.settings.configuration import merged
from t5x_harness.settings.options import RUNS, reference
from t5x_harness.spec import AotMode, RunSettings
from t5x_harness.spec.option import option, options_of


@dataclasses.dataclass(frozen=True)
class WiderSettings(RunSettings):
    """The settings of runs with two more options: one takes a number, and one takes a word of an enumeration."""

    wait_seconds: int = option(
        2,
        "how long to wait for a run",
        pytest=True,
        ini=True,
        key=True,
        variable="T5X_HARNESS_WAIT_SECONDS",
        metavar="SECONDS",
        commands=("run",),
        group="output",
    )
    effort: AotMode = option(AotMode.LOWER, "how hard to try", key=True, commands=("run",))


WAIT, EFFORT = options_of(WiderSettings)[-2:]


@pytest.fixture(autouse=True)
def _wider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the wider class's options to the table of all options."""
    for module in (command_line, project):
        monkeypatch.setattr(module, "RUNS", (*RUNS, WAIT, EFFORT))


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., WiderSettings]:
    """Returns a function that makes settings from a command line, variables and a table of pyproject.toml."""

    def made(*arguments: str, table: str = "", **environment: str) -> WiderSettings:
        parser = argparse.ArgumentParser(exit_on_error=False)
        command_line.add_to_command(parser, command_line.RUNS, "run", {})
        (tmp_path / "pyproject.toml").write_text(f"[tool.t5x_harness]\n{table}\n")
        parsed = vars(parser.parse_args(arguments))
        loaded = project.load_project(tmp_path)
        found = command_line.configuration_of(parsed, loaded, environment, tmp_path, tmp_path)
        return WiderSettings(**merged(options_of(WiderSettings), (*found.layers, loaded.layer)))

    return made


def test_command_line_variable_and_project_set_it_in_this_order(settings: Callable[..., WiderSettings]) -> None:
    assert settings().wait_seconds == 2
    assert settings(table="wait_seconds = 3").wait_seconds == 3
    assert settings(table="wait_seconds = 3", T5X_HARNESS_WAIT_SECONDS="4").wait_seconds == 4
    everywhere = settings("--wait-seconds=5", table="wait_seconds = 3", T5X_HARNESS_WAIT_SECONDS="4")
    assert everywhere.wait_seconds == 5
    assert settings("--effort=full").effort is AotMode.FULL
    assert settings(table="effort = 'memory'").effort is AotMode.MEMORY


def test_each_source_refuses_what_it_does_not_take(settings: Callable[..., WiderSettings]) -> None:
    with pytest.raises(argparse.ArgumentError, match="--wait-seconds: must be a whole number from 1 up, not 'soon'"):
        settings("--wait-seconds=soon")
    with pytest.raises(ValueError, match="T5X_HARNESS_WAIT_SECONDS must be a whole number from 1 up, not '0'"):
        settings(T5X_HARNESS_WAIT_SECONDS="0")
    with pytest.raises(ValueError, match=r"pyproject.toml:2: wait_seconds has to be a whole number of seconds"):
        settings(table="wait_seconds = 'x'")
    with pytest.raises(ValueError, match=r"pyproject.toml:2: effort 'x' is none of lower, depths, memory, full"):
        settings(table="effort = 'x'")


def test_pytest_has_the_option_and_the_ini_value(tmp_path: Path) -> None:
    options: dict[str, Any] = {}
    ini: dict[str, str] = {}
    command_line.add_option_to_pytest(
        WAIT,
        lambda *names, **about: options.update(dict.fromkeys(names, about)),
        lambda name, *rest: ini.update({name: rest[0]}),
    )
    assert options["--t5x-wait-seconds"]["help"] == "How long to wait for a run (default: 2)"
    assert ini == {"t5x_wait_seconds": "How long to wait for a run (default: 2)"}
    values = {"t5x_wait_seconds": None}, {"t5x_wait_seconds": "7"}, {"T5X_HARNESS_WAIT_SECONDS": "6"}
    given, kept, variables = values
    layers = command_line.layers_of([WAIT], given.get, kept.get, variables, tmp_path, tmp_path)
    assert layers == ({}, {"wait_seconds": 6}, {"wait_seconds": 7})


def test_the_reference_has_its_row() -> None:
    row = (
        "| `--t5x-wait-seconds` | `t5x_wait_seconds` | `wait_seconds` | `T5X_HARNESS_WAIT_SECONDS` | `--wait-seconds` "
        "| how long to wait for a run | 2 |"
    )
    assert reference([WAIT]).splitlines()[-1] == row
