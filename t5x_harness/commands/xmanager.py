"""XManager's launch scripts in T5X's guides: the commands that replace them, and their options here."""

import argparse
import os
import re
import shutil
from collections.abc import Sequence

_LAUNCHERS, _SCRIPTS = ("gxm", "xmanager"), ("xm_launch.py",)
_SUBMIT = "t5x-harness submit CONFIG.gin --model_dir=gs://BUCKET/RUN sends a config as a job of Vertex AI"
_AUXILIARY = (
    "t5x-harness auxiliary takes the same options and starts the jobs that --auxiliary_job_… describe; the train job's "
    "folder is --model_dir=DIR, and its command follows after --"
)
_GENERATIONS = {"jf": "v2", "df": "v3", "pf": "v4"}
_PLATFORM = re.compile(r"(?P<generation>[jdp]f)_(?P<topology>\d+x\d+(x\d+)?)")


def instead_of(command: Sequence[str]) -> str | None:
    """Returns a message with the replacement for an XManager launch script that is missing here; otherwise None."""
    program = os.path.basename(command[0])
    is_auxiliary = any(word.startswith("--auxiliary_job_") for word in command[1:])
    hint = _AUXILIARY if is_auxiliary else _SUBMIT
    if program in _LAUNCHERS and shutil.which(command[0]) is None:
        return f"{command[0]}: command not found. It launches XManager; {hint}"
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    if program.startswith("python") and os.path.basename(script) in _SCRIPTS and not os.path.exists(script):
        return f"there is no file {script}. It launches XManager; {hint}"
    return None


def platform(text: str) -> str:
    """Returns the harness's name for a slice, such as v2:2x2 for ``jf_2x2``; other names are unchanged."""
    found = _PLATFORM.fullmatch(text)
    return f"{_GENERATIONS[found['generation']]}:{found['topology']}" if found else text


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds the options that name the place where XManager runs the train job; they are accepted and ignored."""
    for name in ("--cell", "--platform"):
        group.add_argument(
            name,
            dest=f"train_job_{name.removeprefix('--')}",
            metavar="NAME",
            help="where XManager runs the train job: not used, as its command stands after --",
        )


def not_used(args: argparse.Namespace) -> list[str]:
    """Returns the given options of :func:`add_arguments` as they were typed."""
    given = {name: getattr(args, f"train_job_{name}") for name in ("cell", "platform")}
    return [f"--{name}={value}" for name, value in given.items() if value]
