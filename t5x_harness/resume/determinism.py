"""Finds the first difference between two trainings of one config, and what it is most likely due to."""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.resume.comparison import scalar_differences
from t5x_harness.resume.history import History, Life, State, different
from t5x_harness.spec import Reason, RunResult, Severity, Stage

_OF_OTHER_STAGES = ("eval/", "infer/")
_PARAMETERS = "target/"


class Again(enum.StrEnum):
    """How a training was done once more."""

    SAME = "the same once more"
    MESH = "on another mesh"
    RESUMED = "killed and resumed"
    HOSTS = "on another number of hosts"


class Part(enum.Enum):
    """The part of a training in which two of them differ, in the order of causes."""

    START = enum.auto()
    BATCH = enum.auto()
    STATE = enum.auto()
    END = enum.auto()
    VALUES = enum.auto()
    METRIC = enum.auto()


@dataclasses.dataclass(frozen=True)
class RecordedTraining:
    """A training whose batches and states were recorded.

    Attributes:
      name: its name in messages.
      history: its record.
      metrics: the scalars that it wrote, by tag and step; None if they are not compared here.
      parameters: the names of its last checkpoint's parameters, and a function that reads one; None to leave them out.
    """

    name: str
    history: History
    metrics: Mapping[str, Mapping[int, float]] | None = None
    parameters: tuple[Sequence[str], Callable[[str], object]] | None = None


@dataclasses.dataclass(frozen=True)
class FirstDifference:
    """The first difference of two trainings.

    Attributes:
      part: where it is.
      step: the train step.
      what: the example, the array or the metric.
      values: what both have there, in words.
      moved: where the example of the one training is in the other one, in words; empty if it is not there.
    """

    part: Part
    step: int
    what: str
    values: tuple[str, str]
    moved: str = ""


def recorded(result: RunResult, name: str, *, resumed: bool = False) -> RecordedTraining | None:
    """Returns the training that a run has recorded; None if it has recorded none.

    Args:
      result: the result of a run with ``resume``; up to train, it records its training and restarts none.
      name: a name for messages.
      resumed: whether to return the training that was killed and resumed, in place of the run's own.
    """
    folder = Path(result.log).parent / Stage.RESUME.value
    history = History.read(folder / f"{'resumed' if resumed else 'reference'}.jsonl")
    if not history.lives or not history.batches():
        return None
    own = {tag: steps for tag, steps in result.metrics.items() if not tag.startswith(_OF_OTHER_STAGES)}
    return RecordedTraining(name, history, None if resumed else own)


def with_parameters(training: RecordedTraining, result: RunResult) -> RecordedTraining:
    """Returns a training with the parameters of the last checkpoint that its run wrote, if it wrote one."""
    if not result.checkpoints:
        return training
    from t5x_harness.conversion.stored import read_t5x

    stored = read_t5x(result.checkpoints[-1].path)
    return dataclasses.replace(training, parameters=(sorted(stored.tensors), stored.read))


def beginning(training: RecordedTraining) -> RecordedTraining:
    """Returns only the state that a training began with, which does not depend on the data."""
    first = training.history.lives[0]
    life = Life(first.began, {first.began: first.states[first.began]})
    return RecordedTraining(training.name, History([life]))


def first_difference(
    one: RecordedTraining, other: RecordedTraining, tolerance: float | None = None
) -> FirstDifference | None:
    """Compares batches, states and metrics, step by step.

    Args:
      one: a training.
      other: another one of the same config.
      tolerance: the difference relative to the size that arrays and metrics may have; None if they must be equal to the
        bit. Batches must always be.
    """
    found = _differences(one, other, tolerance)
    return next(found, None)


def _differences(one: RecordedTraining, other: RecordedTraining, tolerance: float | None) -> Iterator[FirstDifference]:
    batches = one.history.batches(), other.history.batches()
    states = one.history.states(), other.history.states()
    for step in sorted({*batches[0], *batches[1], *states[0], *states[1]}):
        # The state of a step is reached before the batch of the next one, which has the same number, is taken.
        if step in states[0] and step in states[1]:
            part = Part.START if step == one.history.lives[0].began else Part.STATE
            yield from _of_states(part, step, states[0][step], states[1][step], tolerance)
        if step in batches[0] and step in batches[1]:
            yield from _of_batches(step, *batches)
    ends = max(states[0]), max(states[1])
    if ends[0] != ends[1]:
        yield FirstDifference(Part.END, min(ends), "the last step", (str(ends[0]), str(ends[1])))
    if one.parameters is not None and other.parameters is not None and tolerance is not None:
        yield from _of_values(ends[0], one.parameters, other.parameters, tolerance)
    if one.metrics is not None and other.metrics is not None:
        yield from _of_metrics(one.metrics, other.metrics, tolerance)


def _of_states(part: Part, step: int, one: State, other: State, tolerance: float | None) -> Iterator[FirstDifference]:
    for path in different(one, other):
        if path not in one or path not in other:
            values = ("there", "missing") if path in one else ("missing", "there")
            yield FirstDifference(part, step, path, values)
            continue
        (digest, norm), (other_digest, other_norm) = one[path], other[path]
        if tolerance is None:
            shown = (f"norm {norm:.6g}, digest {digest}", f"norm {other_norm:.6g}, digest {other_digest}")
            yield FirstDifference(part, step, path, shown)
        elif not _close(norm, other_norm, tolerance):
            yield FirstDifference(part, step, path, (f"norm {norm:.6g}", f"norm {other_norm:.6g}"))


def _of_batches(
    step: int, one: Mapping[int, Sequence[str]], other: Mapping[int, Sequence[str]]
) -> Iterator[FirstDifference]:
    rows, others = one[step], other[step]
    if len(rows) != len(others):
        values = f"{len(rows)} examples", f"{len(others)} examples"
        yield FirstDifference(Part.BATCH, step, "the size of the batch", values)
    for index, (row, other_row) in enumerate(zip(rows, others, strict=False)):
        if row != other_row:
            places = ((at, number) for at in sorted(other) for number, each in enumerate(other[at]) if each == row)
            place = next(places, None)
            moved = "" if place is None else f"example {place[1]} of the batch of step {place[0]}"
            yield FirstDifference(Part.BATCH, step, f"example {index} of the batch", (row, other_row), moved)


def _of_values(
    step: int,
    one: tuple[Sequence[str], Callable[[str], object]],
    other: tuple[Sequence[str], Callable[[str], object]],
    tolerance: float,
) -> Iterator[FirstDifference]:
    import numpy as np

    (names, read), (_, read_other) = one, other
    for name in names:
        value, other_value = (np.asarray(each(name)).astype(np.float64) for each in (read, read_other))
        size, apart = float(np.linalg.norm(value)), float(np.linalg.norm(value - other_value))
        if not apart <= tolerance * max(size, 1e-30):
            place = np.unravel_index(int(np.argmax(np.abs(value - other_value))), value.shape)
            shown = (f"{value[place]:.6g} at {[*map(int, place)]}", f"{other_value[place]:.6g} there")
            yield FirstDifference(Part.VALUES, step, f"{_PARAMETERS}{name}", shown)


def _of_metrics(
    one: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]], tolerance: float | None
) -> Iterator[FirstDifference]:
    for tag, step, _ in sorted(scalar_differences(one, other), key=lambda each: each[1]):
        value, found = one[tag][step], other.get(tag, {}).get(step)
        if found is None:
            yield FirstDifference(Part.METRIC, step, tag, (f"{value:.6g}", "missing"))
        elif tolerance is None or not _close(value, found, tolerance):
            yield FirstDifference(Part.METRIC, step, tag, (f"{value:.9g}", f"{found:.9g}"))


def _close(one: float, other: float, tolerance: float) -> bool:
    return math.isclose(one, other, rel_tol=tolerance) or (math.isnan(one) and math.isnan(other))


def unseeded(result: RunResult) -> str | None:
    """Describes what T5X takes from the clock in a config, with the bindings that end it; None if it takes nothing.

    A shrunk run binds seeds of its own in their place, so that its report shows them.
    """
    bound = [c for stage in result.stages for c in stage.changes if c.why is Reason.REPEATABLE and c.after.isdigit()]
    if not bound:
        return None
    names = " and ".join(dict.fromkeys(change.binding for change in bound))
    fix = " and ".join(dict.fromkeys(f"{change.binding} = {change.after}" for change in bound))
    verb = "is" if len(bound) == 1 else "are"
    return f"{names} {verb} not bound, so that T5X takes a seed from the clock\nfix: bind {fix}"


def explained(difference: FirstDifference, again: Again, result: RunResult) -> str:
    """Returns the likely cause of a difference, and the fix, as two lines.

    Args:
      difference: the difference.
      again: how the second training was done.
      result: the result of the run that did it.
    """
    if again is Again.RESUMED and (said := said_by_resume(result)):
        return said
    if again is Again.HOSTS:
        cause, fix = "the initial values depend on the host", "look for jax.process_index and the clock in the model"
    elif again is Again.MESH:
        cause, fix = _of_mesh(difference, result)
    elif difference.part is Part.BATCH:
        cause, fix = _of_data(difference)
    else:
        cause, fix = _OF_STEPS[difference.part]
        if difference.part is Part.STATE and (binding := _hardware_rng(result)):
            cause, fix = "dropout uses the hardware's generator, which does not promise to repeat", binding
    return f"likely cause: {cause}\nfix: {fix}"


_OUTSIDE = "look for numpy.random, random, time, and counters that outlive a step"
_OF_STEPS = {
    Part.START: ("the initial values do not come from the generator that T5X passes", f"{_OUTSIDE}, in the model"),
    Part.STATE: (
        "from the same state and the same batch, the train step computes another state: it takes something from "
        "elsewhere",
        f"{_OUTSIDE}, in the model, the loss and the trainer",
    ),
    Part.END: ("the number of steps depends on something else than the config", "bind total_steps"),
    Part.METRIC: (
        "all states are equal, so that the metric itself takes something from elsewhere",
        f"{_OUTSIDE}, in the metrics of the model and the trainer",
    ),
}


def _of_data(difference: FirstDifference) -> tuple[str, str]:
    if difference.moved:
        return (
            f"the examples come in another order: this one is {difference.moved} there",
            "shuffle with the seed that SeqIO passes, and sort what a file system lists",
        )
    return (
        "the example is made in another way each time: a preprocessor or source draws random numbers of its own",
        "take them from the seed that SeqIO passes (seqio.map_over_dataset(num_seeds=1), or the argument seed)",
    )


def _of_mesh(difference: FirstDifference, result: RunResult) -> tuple[str, str]:
    if difference.part is Part.BATCH:
        return (
            "the data depends on the mesh, or another number of hosts reads it, each of which has a part of its own",
            "look for jax.device_count, process_index and shard_info in sources and preprocessors, or name a mesh with "
            "as many hosts",
        )
    if binding := _hardware_rng(result):
        return "the hardware's generator gives other numbers where arrays are divided in another way", binding
    return (
        "the model or its loss depends on how arrays are divided, such as a mean over one device's part; or it rounds, "
        "so that sums in another order differ by more than the tolerance",
        "look at reductions and at with_sharding_constraint, or pass a larger tolerance",
    )


def _hardware_rng(result: RunResult) -> str | None:
    """Returns the statement that has dropout use JAX's own generator, if the config has it use the hardware's."""
    values = {bound.name: bound.assignment.value for bound in result.bindings}
    name = next((name for name in values if name.endswith(".use_hardware_rng")), None)
    while name is not None and values.get(name, "").startswith("%"):
        name = values[name].removeprefix("%")
    return f"bind {name} = False" if name is not None and values.get(name) == "True" else None


def said_by_resume(result: RunResult) -> str:
    """Returns what the stage resume says, which knows how the training was killed and what is saved."""
    stage = result.stage(Stage.RESUME)
    ranked = sorted(stage.findings, key=lambda finding: [*Severity].index(finding.severity))
    if ranked:
        return f"{ranked[0].code}: {ranked[0].message}\nfix: {ranked[0].fix}"
    return f"likely cause: {stage.not_checked[0]}" if stage.not_checked else ""
