"""The code blocks of a page, and ways to run and parse them as a reader does."""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.commands.main import parser_of
from t5x_harness.settings.command_line import rewrite_gin, with_values


def blocks(page: str, language: str) -> list[str]:
    """Returns the texts of a page's blocks in one language, in order; each ends with a line feed."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def parsed(command: str) -> argparse.Namespace:
    """Returns the arguments of a line such as ``t5x-harness lint run.gin``, which the program must accept."""
    program, *words = (word for word in shlex.split(command, comments=True) if word != "&")
    assert program == "t5x-harness"
    parser, module = parser_of(words[0])
    own, _ = module.split(words) if hasattr(module, "split") else (words, ())
    return parser.parse_args(rewrite_gin(with_values(own)))


def commands_in(page: str, program: str) -> list[str]:
    """Returns the lines of a page's shell and console blocks and of workflows' steps that begin with a program."""
    shown = "".join(block.replace("\\\n", " ") for language in ("shell", "console") for block in blocks(page, language))
    lines = re.findall(rf"^(?:\$ )?({program} [a-z-].*)$", shown, re.MULTILINE)
    lines += re.findall(rf"^ *- run: ({program} .+)$", page, re.MULTILINE)
    return [line.partition(" | ")[0] for line in lines]


def options_of(command: str) -> set[str]:
    """Returns the names of the options that a command of ``t5x-harness`` takes."""
    parser, _ = parser_of(command)
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return set(commands.choices[command]._option_string_actions)


def python(source: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a program, which must succeed; returns its output."""
    return _output([sys.executable, "-c", source], folder, environment)


def bash(script: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a script in a Bash that stops at the first error; returns its output."""
    return _output(["bash", "-euo", "pipefail", "-c", script], folder, environment)


def _output(command: list[str], folder: Path, environment: Mapping[str, str] | None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
