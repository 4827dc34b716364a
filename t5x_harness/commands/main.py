"""The command ``t5x-harness``."""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from t5x_harness.commands.arguments import FOUND, INTERRUPTED, USAGE, UsageError, note
from t5x_harness.commands.parsing import CheckedParser, given_in, naming_option, shown, unknown_option
from t5x_harness.runs.model_dirs import ModelDirError
from t5x_harness.settings.command_line import rewrite_gin, with_values
from t5x_harness.settings.forms import SettingsError
from t5x_harness.system.processes import handle_interrupts
from t5x_harness.version import __version__

COMMANDS: Mapping[str, str] = {
    "lint": "read configs without running them, within a second",
    "plan": "resolve configs and print shapes, mesh, memory and steps",
    "run": "train, evaluate and infer a few steps of configs on an emulated TPU slice",
    "submit": "run configs as Vertex AI jobs, once they were checked, and follow them",
    "auxiliary": "evaluate or fine-tune each checkpoint of a train job as soon as it is finished",
    "fit": "say which slices hold a config, with what settings, how long it trains there and what that costs",
    "exec": "run any command with t5x importable and a slice's devices",
    "serve": "serve an emulated Google Cloud (gs://, tokens, a proxy) to this machine's shells until ended",
    "warm": "keep T5X imported, so that every further pytest or run of this machine's shells starts at once",
    "doctor": "check this Python environment for clashes, each with its fix",
    "convert": "write a checkpoint as a folder of transformers or as safetensors, and back",
    "cache": "preprocess SeqIO tasks once, into files that USE_CACHED_TASKS = True reads",
    "explain": "say what the code of a finding means, or what the log of a job died of",
}
"""The commands and their summaries. The module with a command's name has its EPILOG, add_arguments and main.

The summaries are here so that ``--help`` does not have to import the modules.
"""

_RUN_COMMANDS = ("lint", "plan", "run", "submit", "auxiliary", "fit")
_DESCRIPTION = "Tests T5X configs on an emulated TPU slice, without a TPU."
_FIRST_STEPS = """\
first steps:
  t5x-harness lint my_config.gin       seconds: what is wrong with the text
  t5x-harness run my_config.gin        a minute: trains, checkpoints, evaluates and infers it in small
  t5x-harness COMMAND --help           everything about one command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name.

    Args:
      arguments: the arguments without the program's name; by default the arguments of this process.

    Returns:
      The exit status: 0 if all is well, 1 if something was found or failed, 2 for wrong usage, 130 if interrupted.
    """
    started = time.perf_counter()
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = next((a for a in given if not a.startswith("-")), None)
    parsed = argparse.Namespace(started=started)
    try:
        parser, module = parser_of(command)
        if split := getattr(module, "split", None):
            given, train_command = split(given)
            parsed.train_command = train_command
        words = rewrite_gin(with_values(given)) if command in _RUN_COMMANDS else given
        parsed, unknown = parser.parse_known_args(words, parsed)
        if unknown and command not in COMMANDS:
            parser.error(f"there is no option {unknown[0]} without a command")
        if unknown:
            raise UsageError(_not_taken(unknown[0], str(command)))
        if module is None:
            parser.print_help()
            return USAGE
        if command != "exec":  # the executed command gets the shell's own signal handling
            handle_interrupts()
        status: int = module.main(parsed)
    except (UsageError, SettingsError, ModelDirError) as error:
        note(naming_option(str(error), given_in(parsed)))
        return USAGE
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    return status


def _not_taken(word: str, command: str) -> str:
    """Returns a message for a word that a command does not take."""
    own, others = _parser_alone(command), [name for name in COMMANDS if name != command]
    if not word.startswith("-"):
        hint = "; write all arguments that are not options together" if own.takes_words else ""
        return f"unrecognized arguments: {shown(word)}{hint}"
    return unknown_option(word, command, own.options, lambda: {name: _parser_alone(name).options for name in others})


def _parser_alone(command: str) -> CheckedParser:
    parser = CheckedParser(prog=command)
    importlib.import_module(f"t5x_harness.commands.{command}").add_arguments(parser)
    return parser


def parser_of(command: str | None) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """Returns the parser, with only the arguments of ``command``, and the command's module.

    Modules of other commands are not imported.
    """
    layout: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = CheckedParser(prog="t5x-harness", description=_DESCRIPTION, epilog=_FIRST_STEPS, **layout)
    parser.add_argument("--version", action="version", version=f"t5x-harness {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {
        name: commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", **layout)
        for name, summary in COMMANDS.items()
    }
    if command is None or command not in COMMANDS:
        return parser, None
    module = importlib.import_module(f"t5x_harness.commands.{command}")
    parsers[command].epilog = module.EPILOG
    module.add_arguments(parsers[command])
    return parser, module
