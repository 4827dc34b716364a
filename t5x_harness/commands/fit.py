"""``t5x-harness fit``: finds the slices that hold a config, the settings for it, and the cost of training there."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.commands.arguments import INTERRUPTED, UsageError, add_run_arguments, specs_of
from t5x_harness.settings.command_line import session_options
from t5x_harness.settings.forms import count, positive
from t5x_harness.slices.slice import GENERATIONS, SliceError, get_slice
from t5x_harness.spec import AotMode, Outcome, RunSpec, Stage
from t5x_harness.system.misspelling import did_you_mean

if TYPE_CHECKING:
    from t5x_harness.aot.request import AotRun
    from t5x_harness.aot.variants import RunVariant
    from t5x_harness.commands.fit_output import FitReport
    from t5x_harness.runs.run import Run
    from t5x_harness.workers.progress import ProgressPrinter

EPILOG = """\
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
"""

_HOURS = 48.0
_POWERS = 4
"""The number of microbatch counts that are tried by default, each twice the previous one."""

_OF_A_SLICE = ("MSH02", "MSH09", "MSH11")
"""Findings of the plan that may not apply to another combination."""

_PROGRAMS = ("train", "train_eval", "predict", "score")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments to its parser."""
    groups = add_run_arguments(parser, "fit")
    groups["output"].add_argument("-q", "--quiet", action="store_true", help="print no progress")
    grid = parser.add_argument_group("what to combine")
    where = grid.add_mutually_exclusive_group()
    where.add_argument(
        "--slices", type=_list_of(str), metavar="NAME[,NAME]", help="try exactly these, as v3-8,v4:2x2x4"
    )
    where.add_argument(
        "--generation",
        metavar="NAME",
        help="try its slices, the smallest first, until one holds the config and trains it in --hours (default: that "
        "of the project's slice, or v3)",
    )
    grid.add_argument(
        "--microbatches",
        type=_list_of(count),
        metavar="N[,N]",
        help="parts of a train step's batch (default: the config's, then 2, 4 and 8 times as many while none fits)",
    )
    for name, what in (("partitions", "devices that hold a copy of the model"), ("batch", "examples of a step")):
        grid.add_argument(
            f"--{name}", type=_list_of(count), metavar="N[,N]", help=f"{what} (default: what the config has)"
        )
    grid.add_argument(
        "--remat",
        type=_list_of(str),
        metavar="POLICY[,POLICY]",
        help="remat_policy of T5X's scalable networks: none, minimal, full (default: the config's)",
    )
    grid.add_argument(
        "--programs",
        type=_list_of(str),
        metavar="NAME[,NAME]",
        help=f"those that have to fit, of {', '.join(_PROGRAMS)} (default: all that the config's job compiles)",
    )
    grid.add_argument("--every", action="store_true", help="compile what a row above decides, too")
    grid.add_argument(
        "--hours", type=positive, default=_HOURS, metavar="N", help=f"that training may take (default: {_HOURS:g})"
    )
    parser.add_argument_group("how to compile").add_argument(
        "--aot",
        choices=[mode.value for mode in AotMode if mode is not AotMode.LOWER],
        help="depths: two small depths, extrapolated; memory: all layers, until memory is assigned; full: to the "
        "machine's code (default: depths)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Raises:
      UsageError: the arguments are wrong.
    """
    from t5x_harness.aot import libtpu
    from t5x_harness.aot.variants import REMAT
    from t5x_harness.system.own_folders import own_folder

    spec = _spec(arguments)
    slices = _slices(arguments, spec)
    for option, names, known in (("--programs", arguments.programs, _PROGRAMS), ("--remat", arguments.remat, REMAT)):
        for name in names or ():
            if name not in known:
                raise UsageError(f"{option} {name}: choose of {', '.join(known)}{did_you_mean(name, known)}")
    if not libtpu.is_installed():
        raise UsageError(f"fit: {libtpu.LibtpuMissing()}")
    with own_folder("t5x-harness-fit-") as folder:
        return _found(arguments, spec, slices, folder.path)


def _list_of(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        parts = [part.strip() for part in text.split(",")]
        if not all(parts):
            raise argparse.ArgumentTypeError(f"{text!r}: give values with commas between them")
        return tuple(dict.fromkeys(map(parse, parts)))

    return read


def _spec(arguments: argparse.Namespace) -> RunSpec:
    from t5x_harness.gin.reading import program_of
    from t5x_harness.lint.stage import missing_gin_files
    from t5x_harness.runtime.choice import RuntimeChoiceError

    specs = specs_of(arguments, Path.cwd())
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"fit takes one config, and these are {len(specs)}: {names}")
    (spec,) = specs
    try:
        if missing := missing_gin_files(program_of(spec)):
            raise UsageError(missing[0])
    except RuntimeChoiceError as error:
        raise UsageError(str(error)) from None
    compiled = spec.settings.aot if spec.settings.aot not in (None, AotMode.LOWER) else AotMode.DEPTHS
    return spec.with_settings(aot=compiled, until=Stage.PLAN, ignore=(*spec.settings.ignore, *_OF_A_SLICE))


def _slices(arguments: argparse.Namespace, spec: RunSpec) -> list[str]:
    try:
        own = get_slice(spec.slice)
        if arguments.slices:
            return sorted(arguments.slices, key=lambda name: get_slice(name).num_chips)
    except SliceError as error:
        raise UsageError(f"--slices: {error}" if arguments.slices else str(error)) from None
    known = {generation.name: generation for generation in GENERATIONS}
    name = arguments.generation or own.generation.name
    if name not in known:
        raise UsageError(f"--generation {name}: choose one of {', '.join(known)}{did_you_mean(name, known)}")
    return [f"{name}-{size}" for size, _ in known[name].sizes]


def _found(arguments: argparse.Namespace, spec: RunSpec, slices: list[str], folder: Path) -> int:
    """Plans the config, searches for combinations that fit, and writes the result; returns the exit status."""
    from t5x_harness.commands.fit_output import FitReport, write
    from t5x_harness.runs.pool import RunContext, RunPool
    from t5x_harness.system.ending import Ending
    from t5x_harness.workers.progress import ProgressPrinter

    given = session_options(vars(arguments))
    pool = RunPool(timeout=given.timeout, keep=not given.no_keep)
    printer = ProgressPrinter(sys.stderr, label=spec.name)
    progress = _SearchProgress(None if arguments.quiet else printer)
    found = FitReport(spec, arguments.hours, dict(spec.settings.prices))

    def tell() -> None:
        printer.close()
        write(found, arguments)

    def runs() -> Iterator[Run]:
        for number, name in enumerate(dict.fromkeys((spec.slice, *slices))):
            planned = dataclasses.replace(spec, slice=name)
            yield pool.run(planned, folder / str(number), RunContext(given.network == "allow"), progress)

    ending = Ending(INTERRUPTED, tell)
    try:
        with ending.watching():
            for run in pool.finished(runs()):
                failed = next((each for each in run.done.values() if each.outcome is Outcome.FAILED), None)
                if failed is not None and any(each.code in ("MSH03", "MSH04") for each in failed.errors):
                    found.refused = found.refused or run.result()
                    continue
                found.refused = run.result() if failed is not None else None
                if failed is None:
                    _search(run, arguments, slices, progress, found)
                break
    except KeyboardInterrupt:
        found.is_complete = False
    if not found.is_complete:
        ending.begin()
        ending.tell()  # before running processes are ended, which may take long
        pool.kill()
    else:
        tell()
    pool.close(patient=found.is_complete)
    ending.restore()
    return found.status if found.is_complete else INTERRUPTED


def _search(
    run: Run,
    arguments: argparse.Namespace,
    slices: list[str],
    progress: _SearchProgress,
    found: FitReport,
) -> None:
    from t5x_harness.aot.search import FitGrid, FitSearch
    from t5x_harness.runs.local import LocalExecutor

    assert isinstance(run.executor, LocalExecutor)
    described, compiler = run.executor.aot(run)
    found.run = described
    wanted = arguments.programs or tuple(program.name for program in described.programs)
    there = [program.name for program in described.programs]
    if missing := [name for name in wanted if name not in there] or (not there and ["any program"]):
        has = f"it has {', '.join(there)}" if there else "; ".join(described.not_checked)
        raise UsageError(f"the config's job does not compile {' and '.join(missing)}: {has}")
    grid = FitGrid(
        slices,
        arguments.partitions or (None,),
        arguments.batch or (None,),
        arguments.remat or (None,),
        arguments.microbatches or _microbatches(described, wanted),
        wanted,
        every=arguments.every,
        stop=not arguments.slices,
    )
    found.programs = wanted
    search = FitSearch(described, run.spec, compiler, arguments.hours, found.prices, progress.begin)
    found.rows.extend(search.rows(grid))  # an interruption leaves the rows before it


def _microbatches(run: AotRun, programs: tuple[str, ...]) -> tuple[int | None, ...]:
    """Returns the config's own number of microbatches, and a few larger ones if the config can have others."""
    from t5x_harness.aot.request import TRAIN
    from t5x_harness.aot.variants import own_microbatches

    own = own_microbatches(run)
    train = next((program for program in run.programs if program.name == TRAIN), None)
    if train is None or TRAIN not in programs or "num_microbatches" not in run.knobs:
        return (None,)
    batch = next((shape[0] for shape in train.shapes.values()), 0)
    return tuple(own * 2**power for power in range(_POWERS) if power == 0 or batch % (own * 2**power) == 0)


class _SearchProgress:
    """Shows the combination that is being compiled, and how many are left at most."""

    def __init__(self, printer: ProgressPrinter | None) -> None:
        self._printer = printer
        self._shown: dict[str, Any] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        if self._printer is not None:
            self._printer({**event, **self._shown})

    def begin(self, number: int, of: int, variant: RunVariant) -> None:
        """Records and shows the next combination."""
        self._shown = {"stage": " ".join(_words(variant)), "step": number, "of": of}
        self({})


def _words(variant: RunVariant) -> Iterator[str]:
    yield variant.slice or ""
    for value, one, more in (
        (variant.num_partitions, "partition", "partitions"),
        (variant.batch_size, "example", "examples"),
        (variant.num_microbatches, "microbatch", "microbatches"),
    ):
        if value is not None:
            yield f"{value} {one if value == 1 else more}"
    if variant.remat_policy:
        yield f"remat {variant.remat_policy}"
