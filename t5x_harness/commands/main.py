"""The command ``t5x-harness``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from t5x_harness.commands.arguments import UsageError, add_run_arguments, specs_of
from t5x_harness.findings.printable import printable
from t5x_harness.report.report import Report
from t5x_harness.runs.model_dirs import ModelDirError
from t5x_harness.settings.command_line import rewrite_gin, session_options, with_values
from t5x_harness.settings.forms import SettingsError
from t5x_harness.spec import RunResult, RunSpec, Stage
from t5x_harness.system.processes import handle_interrupts
from t5x_harness.version import __version__

FINE, FOUND, USAGE, INTERRUPTED = 0, 1, 2, 130

_LAST = 3
"""Folders of failed runs that stay in TMPDIR, as pytest keeps its own."""

_RUN_COMMANDS = ("lint", "plan", "run", "submit", "auxiliary", "fit")
_MODULES: Mapping[str, str] = {
    "submit": "t5x_harness.commands.submit.command",
    "auxiliary": "t5x_harness.commands.auxiliary",
    "fit": "t5x_harness.commands.fit",
    "exec": "t5x_harness.commands.exec",
    "serve": "t5x_harness.commands.serve",
    "warm": "t5x_harness.commands.warm",
    "doctor": "t5x_harness.commands.doctor",
    "convert": "t5x_harness.commands.convert",
    "cache": "t5x_harness.commands.cache",
    "explain": "t5x_harness.commands.explain",
}
_SUMMARIES: Mapping[str, str] = {
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
    "explain": "say what the code of a finding means, with a bad and a good example",
}
_EPILOGS: Mapping[str, str] = {
    "lint": """\
examples:
  t5x-harness lint configs/finetune.gin
  t5x-harness lint configs/                       every run config below a folder
  t5x-harness lint --gin_file=model.gin --gin_file=t5x/configs/runs/pretrain.gin --gin.TRAIN_STEPS=100
  t5x-harness lint finetune.gin --gin.MODEL_DIR=\\"gs://bucket/run\\" -v
  t5x-harness lint finetune.gin --diff            what --fix would change
  t5x-harness lint finetune.gin --fix             fixes what is safe to fix and reports the rest
  t5x-harness lint --fragments $(git diff --name-only '*.gin')
                                                  changed files, whatever each is for, as pre-commit does
  t5x-harness lint finetune.gin --format json     findings, and where each binding's value comes from
  t5x-harness lint configs/ --format github       annotations, as a step of a GitHub workflow
  t5x-harness lint configs/ --format sarif --output lint.sarif
                                                  text here, and a file for GitHub's code scanning

A FILE that binds none of train, evaluate and infer is a fragment: it is judged without the rules that need a
whole run, and the report says which. Where you name a --gin_file, a binding or a --run_mode, it is a run.

--fix changes only files that you name, or that lie below a folder that you name, and never those of installed
packages. It fixes what can only be meant in one way: quotes, %, a name with one letter wrong, a number written
as a string or a float, a binding above the include that overrides it, imports, and () of references.

Where $GITHUB_STEP_SUMMARY names a file, a summary in Markdown is added to it, whatever the format.

exit status: 0 no error (with --diff: nothing to fix), 1 errors were found, 2 wrong usage
""",
    "plan": """\
examples:
  t5x-harness plan configs/finetune.gin --slice=v3-32
  t5x-harness plan configs/finetune.gin --slice=v4:2x2x2 --gin.BATCH_SIZE=256
  t5x-harness plan configs/finetune.gin --format json --output plan.json
  t5x-harness plan configs/ --plan-golden=golden  fail if a plan differs from the one kept in golden/

exit status: 0 the config resolves and shards, 1 it does not, 2 wrong usage
""",
    "run": """\
examples:
  t5x-harness run configs/finetune.gin
  t5x-harness run configs/finetune.gin --gin.BATCH_SIZE=16 --slice=v3-32
  t5x-harness run --gin_file=t5x/examples/t5/t5_1_1/tiny.gin --gin_file=my_run.gin --run_mode=train
  t5x-harness run                                 the runs that pyproject.toml declares
  t5x-harness run configs/finetune.gin --format github
                                                  annotations, as a step of a GitHub workflow

A config is shrunk to a few small steps (see --full-size); the report lists every change.
exit status: 0 every stage passed, 1 a stage failed, 2 wrong usage
""",
    "submit": "",  # its own
    "auxiliary": "",  # likewise
    "fit": """\
examples:
  t5x-harness fit configs/finetune.gin            slices of the usual generation, the smallest first, until one holds it
  t5x-harness fit configs/finetune.gin --generation v4 --hours 24
                                                  until one holds it and trains all steps in 24 hours
  t5x-harness fit configs/finetune.gin --slices v3-8,v3-32,v4-8 --microbatches 1,2,4 --partitions 1,2
  t5x-harness fit configs/finetune.gin --slices v3-8 --batch 64,128,256 --programs train
  t5x-harness fit configs/pretrain.gin --slices v4-8 --remat none,minimal,full --every
  t5x-harness fit configs/finetune.gin --format json --output fit.json

Each row of the table is a combination, compiled by the TPU's own compiler (extra aot) without a TPU. What arithmetic
refuses is not compiled, and the row says why: a mesh that T5X does not build, a batch that does not divide, a train
state that is too large by itself. Nor is what a row above decides, unless --every asks for it: more microbatches where
fewer fit, a larger batch where a smaller one does not. What was compiled before, by any command, is not compiled again.

Times are bounds: no run is faster. Hours, chip-hours and list prices are shown from the fast to the slow end of what
public runs of T5 reached; --hours counts at the slow end. Ctrl-C prints what is known.
exit status: 0 something fits, 1 nothing does, or the config does not resolve, 2 wrong usage, 130 interrupted
""",
    "exec": """\
examples:
  t5x-harness exec -- python -m t5x.main --run_mode=train --gin_file=finetune.gin
  t5x-harness exec --slice=v3-32 -- python my_script.py
  t5x-harness exec --google -- python -m t5x.main --run_mode=train --gin_file=/gcs/bucket/finetune.gin
  t5x-harness exec --slice=none --google-root=cloud -- gcloud storage ls gs://bucket
                                                  any Google client, and no slice; buckets lie in cloud/buckets
  t5x-harness exec --google-root=cloud --gcs-paths=fuse -- python train.py --model_dir=/gcs/bucket/run
                                                  the same buckets at /gcs, as Cloud Storage FUSE shows them
  t5x-harness exec --network=forbid -- python train.py
                                                  does it need anything beyond this machine?

The command takes the place of exec, so its exit status is that of exec. Else: 2 wrong usage, 125 no
emulated Google Cloud, no FUSE or no way to forbid the network here, 126 the command cannot be run, 127 it is not found.
""",
    "serve": """\
examples:
  t5x-harness serve --root=cloud --env-file=google.env &
  . ./google.env                                  once the file is there: this shell's clients use it
  t5x-harness exec --slice=none -- ls /gcs/bucket in that shell: a command that sees the buckets at /gcs, too
  t5x-harness serve                               prints the lines to paste into another shell
  t5x-harness serve --port=9000 --proxy-port=9001 the same addresses every time

Clients need no change: TensorFlow, tensorstore, orbax, gcsfs, google-cloud-storage, gcloud and gsutil follow the
variables. The proxy answers for Google's hosts itself and refuses every other one; what it refuses is printed here.

exit status: 0 ended by Ctrl-C, SIGTERM or SIGHUP, 1 it could not start, 2 wrong usage
""",
    "warm": """\
examples:
  t5x-harness warm --env-file=warm.env &
  . ./warm.env                                    once the file is there
  pytest -m smoke configs/finetune.gin            does not wait for imports any more; nor does t5x-harness run

Runs are forked from it only where its imports are what theirs would have been: the same Python, T5X and
t5x-harness, the same variables that libraries read, and no imported file changed. Else they import by themselves,
and say why; when a file has changed, it imports again for the sessions that come then. Your own tasks and modules
are never kept: each run imports them anew.

exit status: 0 ended by Ctrl-C, SIGTERM or SIGHUP, 1 it could not start, or died, 2 wrong usage
""",
    "doctor": "",
    "convert": """\
examples:
  t5x-harness convert run/checkpoint_1000 --to transformers --output hf
                                                  settings and vocabulary come from run/config.gin
  t5x-harness convert checkpoint_1000000 --to transformers --output hf --gin_file=t5x/examples/t5/mt5/base.gin \\
      --vocabulary=sentencepiece.model --dtype=bfloat16
  t5x-harness convert run --to transformers --output hf --check
                                                  the latest of a run, and is what it computes the same?
  t5x-harness convert run/checkpoint_1000 --to safetensors --output arrays
                                                  the parameters of any network, under their own names
  t5x-harness convert hf --to t5x --output restored
                                                  restored/checkpoint_1000, for INITIAL_CHECKPOINT_PATH

One array is in memory at a time, so a model of 11 billion parameters needs no more than its largest array. The
output is there when it is complete, or not at all.
exit status: 0 converted, 1 it cannot be, and the message names each array that does not fit, 2 wrong usage
""",
    "cache": """\
examples:
  t5x-harness cache --module_import=my.tasks --tasks=my_task --output_cache_dir=cache
                                                  my_task in files below cache/my_task
  t5x-harness cache --module_import=my.tasks --tasks='my_.*' --excluded_tasks=my_large --output_cache_dir=gs://bucket/cache
  t5x-harness cache --module_import=t5x_harness.sample_tasks.tasks --tasks=sample_translate --output_cache_dir=cache \
      --min_shards=4

The options are those of seqio_cache_tasks, without Apache Beam: for what fits one machine. Runs read the cache
where a config has USE_CACHED_TASKS = True, and the module of the tasks says seqio.add_global_cache_dirs(['cache']).
A task that is cached is left as it is. After Ctrl-C or a crash the same command goes on with what is written; two
at once into one folder are refused.
exit status: 0 cached, 1 a task cannot be, or SeqIO would read something else, 2 wrong usage
""",
    "explain": """\
examples:
  t5x-harness explain GIN02
  t5x-harness explain                  every code in a line
""",
}
_DESCRIPTION = "Tests T5X configs on an emulated TPU slice, without a TPU."
_FIRST_STEPS = """\
first steps:
  t5x-harness lint my_config.gin       seconds: what is wrong with the text
  t5x-harness run my_config.gin        a minute: trains, checkpoints, evaluates and infers it in small
  t5x-harness COMMAND --help           everything about one command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: without the program's name; those of this process by default.

    Returns:
      The exit status: 0 fine, 1 something was found or failed, 2 wrong usage, 130 interrupted.
    """
    started = time.perf_counter()
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = next((a for a in given if not a.startswith("-")), None)
    try:
        parser, module = parser_of(command if command in _SUMMARIES else None)
        if command == "auxiliary" and module is not None:
            given, train_command = module.split(given)
            parser.set_defaults(train_command=train_command)
        parsed = parser.parse_args(rewrite_gin(with_values(given)) if command in _RUN_COMMANDS else given)
        if parsed.command is None:
            parser.print_help()
            return USAGE
        if parsed.command != "exec":  # whose command finds signals as the shell has set them
            handle_interrupts()
        if module is not None:
            run: Callable[[argparse.Namespace], int] = module.run
            return run(parsed)
        return _lint(parsed, started) if parsed.command == "lint" else _run(parsed, started)
    except (UsageError, SettingsError, ModelDirError) as error:
        return _usage(str(error))
    except SystemExit as stop:  # argparse has said why
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        print("t5x-harness: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND


def parser_of(command: str | None) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """Returns the parser, with the arguments of ``command`` only: modules of the others are not imported."""
    parser = argparse.ArgumentParser(
        prog="t5x-harness",
        description=_DESCRIPTION,
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"t5x-harness {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    module: ModuleType | None = None
    for name, summary in _SUMMARIES.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=_EPILOGS[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name != command:
            continue
        if name in _MODULES:
            module = importlib.import_module(_MODULES[name])
            module.add_arguments(sub)
        else:
            add_run_arguments(sub, name)
            if name == "lint":
                importlib.import_module("t5x_harness.commands.lint").add_arguments(sub)
            elif name == "plan":
                sub.set_defaults(until=Stage.AOT)
    return parser, module


def _checked_specs(arguments: argparse.Namespace) -> tuple[RunSpec, ...]:
    """Returns the runs, with everything checked that makes no sense to start with.

    Raises:
      UsageError: nothing to run, a file that is not there, no such slice, no such runtime.
      ModelDirError: a run cannot have the folder that it asks for.
      ProjectError: pyproject.toml has a mistake in it.
    """
    from t5x_harness.runs.model_dirs import ensure_model_dirs
    from t5x_harness.runtime.choice import RuntimeChoiceError
    from t5x_harness.slices.slice import SliceError, get_slice

    try:
        specs = specs_of(arguments, Path.cwd())
        for name in dict.fromkeys(spec.slice for spec in specs):
            get_slice(name)
        _require_files(specs)
        ensure_model_dirs(specs)
    except (SliceError, RuntimeChoiceError) as error:
        raise UsageError(str(error)) from None
    return specs


def _require_files(specs: Sequence[RunSpec]) -> None:
    """Refuses files that nobody can find before anything else is read."""
    from t5x_harness.lint.stage import missing_gin_files

    for spec in specs:
        for missing in missing_gin_files(spec):
            raise UsageError(missing)


def _lint(arguments: argparse.Namespace, started: float) -> int:
    from t5x_harness.commands import lint as lint_command

    def write(report: Report, arguments: argparse.Namespace) -> int:
        return _write(dataclasses.replace(report, seconds=time.perf_counter() - started), arguments)

    return lint_command.run(arguments, _checked_specs(arguments), write)


def _run(arguments: argparse.Namespace, started: float) -> int:
    from t5x_harness.aot.libtpu import LibtpuMissing, is_installed
    from t5x_harness.system.own_folders import own_folder

    specs = _checked_specs(arguments)
    if arguments.aot and not is_installed():
        raise UsageError(f"--aot: {LibtpuMissing()}")
    with own_folder("t5x-harness-run-", last=_LAST) as folder:
        report = _report_of(specs, arguments, started, folder.path)
        if report is None:
            return INTERRUPTED
        try:
            return _write(report, arguments)
        finally:
            if not report.passed and any(path.is_file() for path in folder.path.glob("*/**/*")):
                folder.is_kept = True
                print(f"logs and outputs are kept in {folder.path}", file=sys.stderr)


def _report_of(
    specs: Sequence[RunSpec], arguments: argparse.Namespace, started: float, workspace: Path
) -> Report | None:
    """Returns the outcome of runs; None if they were interrupted, and what is known of them is printed."""
    from t5x_harness.runs.several import RunOptions, run_specs
    from t5x_harness.system.ending import Ending
    from t5x_harness.workers import ProgressPrinter

    given = session_options(vars(arguments))
    options = RunOptions(
        workspace,
        given.timeout,
        given.in_process,
        network=given.network == "allow",
        ahead=0 if given.ahead is None and any(spec.settings.full_size for spec in specs) else given.ahead,
    )
    results: list[RunResult] = []
    printers: list[ProgressPrinter] = []
    imports: list[float] = []

    def progress(spec: RunSpec) -> ProgressPrinter:
        printers.append(ProgressPrinter(sys.stderr, label=spec.name))
        return printers[-1]

    def tell() -> None:
        for printer in printers:
            printer.close()
        _write_interrupted(Report(tuple(results), seconds=time.perf_counter() - started), arguments)

    def on_interrupt(known: Sequence[RunResult]) -> None:
        ending.begin()
        results.extend(known)
        ending.tell()  # before what was started is ended, which may take long

    ending = Ending(INTERRUPTED, tell)
    runs = run_specs(
        specs,
        options,
        on_progress=None if arguments.quiet else progress,
        on_note=_note,
        on_imports=imports.append,
        on_interrupt=on_interrupt,
    )
    try:
        with ending.watching():
            for result in runs:
                if printers:
                    printers[-1].close()
                results.append(result)
        return Report(tuple(results), seconds=time.perf_counter() - started, import_seconds=sum(imports))
    except KeyboardInterrupt:
        ending.begin()
        runs.close()
        ending.tell()
        return None
    finally:
        ending.restore()
        for printer in printers:
            printer.close()


def _write(report: Report, arguments: argparse.Namespace) -> int:
    from t5x_harness.commands.report_output import write_report

    write_report(report, arguments, facts=arguments.command == "plan")
    return FINE if report.passed else FOUND


def _write_interrupted(report: Report, arguments: argparse.Namespace) -> None:
    """Prints what is known of runs that were interrupted, as text: programs get whole reports only."""
    from t5x_harness.commands.report_output import write_for_the_terminal

    if report.results:
        to_programs = arguments.format != "text" and arguments.output is None
        facts = arguments.command == "plan"
        write_for_the_terminal(report, arguments, sys.stderr if to_programs else sys.stdout, facts=facts)
    not_written = arguments.output or (f"--format {arguments.format}" if arguments.format != "text" else "")
    _note("interrupted" + (f"; {not_written} was not written" if not_written else ""))


def _note(message: str) -> None:
    print(f"t5x-harness: {printable(message)}", file=sys.stderr)


def _usage(message: str) -> int:
    _note(message)
    return USAGE
