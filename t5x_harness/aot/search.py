"""Searches slices, partitions, batches, remat policies and microbatches for combinations that fit, with their costs.

A combination is not compiled if arithmetic rules it out, or if a compiled neighbor decides it: a batch does not fit if
a smaller one does not, and if a number of microbatches fits, more of them only take longer.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence

from t5x_harness.aot.account import ProgramAccount, account_program
from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.libtpu import CompilerResult
from t5x_harness.aot.refusals import NotCompiled
from t5x_harness.aot.request import TRAIN, AotRun, ProgramSpec
from t5x_harness.aot.speed import RunEstimate, Span, estimate, price_of, step_time
from t5x_harness.aot.variants import REMAT, RunVariant, TunedRun, VariantRefused, tune
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import RunSpec
from t5x_harness.system.decode import JsonValue
from t5x_harness.workers.errors import WorkerError


class Fits(enum.StrEnum):
    """Whether a combination fits, or why that is not known."""

    YES = "fits"
    NO = "does not fit"
    REFUSED = "refused"
    LEFT_OUT = "not compiled"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class FitGrid:
    """The settings to combine; None stands for the config's own.

    Attributes:
      slices: the slices to run on, the smallest first.
      partitions: the numbers of devices that hold one copy of the model.
      batches: the numbers of examples of a step.
      remat: the rematerialization policies.
      microbatches: the numbers of parts of a train step's batch.
      programs: the kinds of programs that have to fit; empty for all of the run's programs.
      every: whether to compile even combinations that a neighbor decides.
      stop: whether to leave out larger slices once the run fits one and ends in time.
    """

    slices: Sequence[str]
    partitions: Sequence[int | None] = (None,)
    batches: Sequence[int | None] = (None,)
    remat: Sequence[str | None] = (None,)
    microbatches: Sequence[int | None] = (None,)
    programs: Sequence[str] = ()
    every: bool = False
    stop: bool = False

    @property
    def combinations(self) -> list[RunVariant]:
        """All combinations in the order in which they are tried; those that can rule out others come first."""
        return [
            RunVariant(slice_, partitions, batch, parts, remat)
            for slice_ in self.slices
            for partitions in self.partitions
            for batch in sorted(self.batches, key=lambda size: size or 0)
            for remat in sorted(self.remat, key=lambda name: REMAT.index(name) if name in REMAT else -1)
            for parts in sorted(self.microbatches, key=lambda number: number or 0)
        ]


@dataclasses.dataclass(frozen=True)
class FitRow(JsonValue):
    """A combination and its result.

    Attributes:
      variant: the combination, with the config's own settings filled in.
      changes: its changes to the config, in the notation of the command line and Gin; empty for the config's own.
      fits: whether it fits.
      why: the reason why it is not, or cannot be, compiled.
      program: the program that needs most of a device's memory; empty if none is known.
      needed_bytes: the memory that this program needs; None if it is not known.
      usable_bytes: the memory of a device that a program may use.
      is_extrapolated: whether these numbers are extrapolated from fewer layers.
      step_seconds: the seconds of a train step; None if none was compiled.
      estimate: the estimate for all planned steps; None if their number is not known.
    """

    variant: RunVariant
    changes: str
    fits: Fits
    why: str = ""
    program: str = ""
    needed_bytes: int | None = None
    usable_bytes: int = 0
    is_extrapolated: bool = False
    step_seconds: Span | None = None
    estimate: RunEstimate | None = None

    @property
    def headroom_bytes(self) -> int | None:
        """The memory that is left on a device, negative if it is exceeded; None if that is not known."""
        return None if self.needed_bytes is None else self.usable_bytes - self.needed_bytes

    def ends_within(self, hours: float) -> bool:
        """Returns whether all planned steps end in time at the slow end of the band of real runs."""
        return self.estimate is not None and self.estimate.hours.worst <= hours


@dataclasses.dataclass(frozen=True)
class FitSearch:
    """Searches for combinations that fit.

    Attributes:
      run: the run, as its plan describes it.
      spec: the run's specification, whose ``settings.aot`` says how to compile.
      compiler: the compiler, which starts processes for it.
      hours: the hours that training may take.
      prices: the user's prices by generation.
      on_row: a function that is called before each combination with its number from 1, the total number, and the
        combination.
    """

    run: AotRun
    spec: RunSpec
    compiler: Compiler
    hours: float
    prices: Mapping[str, float]
    on_row: Callable[[int, int, RunVariant], None]

    def rows(self, grid: FitGrid) -> Iterator[FitRow]:
        """Yields a row for each combination as soon as its result is known."""
        programs = [p for p in self.run.programs if not grid.programs or p.name in grid.programs]
        done: list[FitRow] = []
        combinations = grid.combinations
        for number, variant in enumerate(combinations, start=1):
            if grid.stop and any(
                row.fits is Fits.YES
                and row.variant.slice != variant.slice
                and (row.estimate is None or row.ends_within(self.hours))
                for row in done
            ):
                return
            self.on_row(number, len(combinations), variant)
            row = self._row(variant, programs, [] if grid.every else done)
            done.append(row)
            yield row

    def _row(self, variant: RunVariant, programs: Sequence[ProgramSpec], done: Sequence[FitRow]) -> FitRow:
        try:
            tuned = tune(self.run, self.spec, variant, programs)
        except VariantRefused as refused:
            return FitRow(variant, "", Fits.REFUSED, str(refused))
        usable = get_slice(tuned.spec.slice).usable_hbm_bytes
        row = FitRow(tuned.variant, tuned.changes, Fits.UNKNOWN, usable_bytes=usable)
        if any(each.variant == tuned.variant for each in done):
            return dataclasses.replace(row, fits=Fits.LEFT_OUT, why="the same as a combination above")
        batch = tuned.variant.batch_size
        for each in done:
            other, size = each.variant, each.variant.batch_size
            is_smaller = dataclasses.replace(other, batch_size=batch) == tuned.variant and (size or 0) < (batch or 0)
            if each.fits is Fits.NO and is_smaller:
                return dataclasses.replace(row, fits=Fits.NO, why=f"a batch of {size} does not fit either")
            if each.fits is Fits.YES and _saves_less(other, tuned.variant):
                return dataclasses.replace(row, fits=Fits.LEFT_OUT, why=f"it fits with {_saving(other)} already")
        return self._compiled(row, tuned)

    def _compiled(self, row: FitRow, tuned: TunedRun) -> FitRow:
        row = dataclasses.replace(row, fits=Fits.YES)
        for program in tuned.run.programs:
            try:
                account = account_program(tuned.run, program, tuned.spec, self.compiler)
            except (NotCompiled, WorkerError) as error:
                first = str(error).partition("\n")[0]
                return dataclasses.replace(row, fits=Fits.UNKNOWN, why=f"{program.name} is not compiled: {first}")
            if isinstance(account, CompilerResult):
                needed = account.required_bytes
                return dataclasses.replace(row, fits=Fits.NO, program=program.name, needed_bytes=needed)
            if account.needed_bytes > (row.needed_bytes or 0):
                row = dataclasses.replace(
                    row,
                    program=program.name,
                    needed_bytes=account.needed_bytes,
                    is_extrapolated=account.is_extrapolated,
                )
            if account.needed_bytes > row.usable_bytes:
                return dataclasses.replace(row, fits=Fits.NO)
            if program.name == TRAIN:
                row = self._timed(row, account)
        return row

    def _timed(self, row: FitRow, account: ProgramAccount) -> FitRow:
        slice_ = get_slice(row.variant.slice or self.spec.slice)
        time = step_time(account.costs, slice_.generation)
        whole = None
        if self.run.steps is not None:
            price = price_of(slice_, self.prices)
            whole = estimate(time, slice_, self.run.steps, account.program.tokens, price)
        return dataclasses.replace(row, step_seconds=time.seconds, estimate=whole)


def smallest(rows: Sequence[FitRow]) -> FitRow | None:
    """Returns the first row with the smallest slice that the run fits; None if it does not fit any."""
    fitting = [row for row in rows if row.fits is Fits.YES]
    return min(fitting, key=lambda row: get_slice(row.variant.slice or "").num_chips, default=None)


def cheapest(rows: Sequence[FitRow], hours: float) -> FitRow | None:
    """Returns the cheapest row that ends in time, by chip-hours if no price is known; None if none does."""
    ending = [row for row in rows if row.fits is Fits.YES and row.ends_within(hours)]
    priced = [row for row in ending if row.estimate is not None and row.estimate.usd is not None]
    return min(priced or ending, key=_cost, default=None)


def _cost(row: FitRow) -> float:
    assert row.estimate is not None
    return (row.estimate.usd or row.estimate.chip_hours).worst


def _saves_less(one: RunVariant, other: RunVariant) -> bool:
    """Returns whether the first variant differs from the second only in fewer microbatches or less recomputation."""
    policies = [v.remat_policy if v.remat_policy in REMAT else REMAT[0] for v in (one, other)]
    weaker = REMAT.index(policies[0]) <= REMAT.index(policies[1])
    fewer = (one.num_microbatches or 1) <= (other.num_microbatches or 1)
    alike = dataclasses.replace(one, num_microbatches=other.num_microbatches, remat_policy=other.remat_policy)
    return alike == other and weaker and fewer


def _saving(variant: RunVariant) -> str:
    parts = variant.num_microbatches or 1
    shown = f"{parts} microbatch{'es' * (parts > 1)}"
    return f"{shown} and remat {variant.remat_policy}" if variant.remat_policy else shown
