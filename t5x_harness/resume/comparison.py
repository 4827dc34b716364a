"""Compares a training that was killed and went on with one that ran through, and names the first difference."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from t5x_harness.resume.history import History, Life, State, compare_examples, different
from t5x_harness.spec import Finding, Severity, Stage

_SLOTS, _PARAMETERS = "state/param_states/", "target/"
"""The beginnings of the paths of optimizer slots and parameters in a train state."""

_SAVE_DATASET = "utils.SaveCheckpointConfig.save_dataset"
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a training that goes on should do.

    Attributes:
      saved: the step of the newest complete checkpoint at the kill; None if there was none.
      first_step: the step that training starts from without one.
      last_step: the step that it ends at.
      saves_dataset: whether checkpoints have the position of the input pipeline.
      save_dtype: the dtype that parameters are saved with; empty for their own.
      hardware_rng: whether dropout uses the hardware's generator.
      elsewhere: the slice, or the number of partitions, that it went on with; empty for those that it had.
    """

    saved: int | None
    first_step: int
    last_step: int
    saves_dataset: bool
    save_dtype: str = ""
    hardware_rng: bool = False
    elsewhere: str = ""


@dataclasses.dataclass
class Comparison:
    """The outcome.

    Attributes:
      findings: the mistakes; only the first difference in the order of causes is one, as the others follow from it.
      facts: what was compared, by name.
      not_checked: what the config's own settings make impossible to compare.
      lost: the number of steps that were trained twice.
    """

    findings: list[Finding] = dataclasses.field(default_factory=list)
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    not_checked: list[str] = dataclasses.field(default_factory=list)
    lost: int = 0


def compare(reference: History, resumed: History, expected: Expected, again: Callable[[], History]) -> Comparison:
    """Compares a resumed training with its reference.

    Args:
      reference: the training that ran through, in one process.
      resumed: the same training in several processes, of which the last one ended by itself.
      expected: what it should do.
      again: a function that repeats the reference. It is called only before the training is blamed for a difference in
        the values of its steps, because those may differ by themselves.
    """
    made = Comparison()
    through, life = reference.lives[-1], resumed.lives[-1]
    lost = max((earlier.reached for earlier in resumed.lives[:-1]), default=life.began) - life.began
    made.lost = max(lost, 0)  # a trainer that saves on SIGTERM has a state that it did not record
    from_ = f"checkpoint_{life.began}" if life.began != expected.first_step else f"step {life.began}, the first one"
    made.facts["went on from"] = f"{from_}; {_count(made.lost, 'step')} trained twice"
    if (doubt := _by_itself(through, resumed.lives[0], expected, made)) is not None:
        made.not_checked.append(doubt)
        return made
    if (finding := _wrong_start(through, life, expected)) is not None:
        made.findings.append(finding)
        return made
    if restored := different(through.states.get(life.began, {}), life.states[life.began]):
        if expected.save_dtype and not any(path.startswith(_SLOTS) for path in restored):
            made.not_checked.append(
                f"the steps after a restart: checkpoints are saved as {expected.save_dtype}, so that the parameters "
                "that training goes on with are rounded"
            )
        else:
            made.findings.append(_wrong_arrays(through.states.get(life.began, {}), life.states[life.began], restored))
        return made
    made.facts["restored"] = f"{len(life.states[life.began])} arrays, equal to those at step {life.began} to the bit"
    if expected.elsewhere:
        examples = compare_examples(reference.batches(), resumed.batches())
        made.facts["examples"] = f"trained twice: {examples.again}, never: {examples.never}"
        made.not_checked.append(
            f"the steps after a restart with {expected.elsewhere}: other hosts read other batches, and another mesh "
            "adds in another order"
        )
    elif not _same_batches(reference, resumed, life, expected, made):
        return made
    if life.reached != expected.last_step:
        message = f"training ended at step {life.reached} after a restart, and at step {expected.last_step} without one"
        fix = "bind total_steps: relative_steps counts from the checkpoint that training goes on from"
        made.findings.append(_error("RES07", message, fix))
        return made
    if expected.elsewhere:
        return made
    if (step := _first_difference(through, life)) is not None:
        noise = _first_difference(through, again().lives[-1])
        if noise is not None:
            made.not_checked.append(
                f"the steps after a restart: without one, the same training differs from itself from step {noise} on"
                f"{', as it uses the hardware RNG' if expected.hardware_rng else ''}"
            )
        else:
            made.findings.append(_wrong_step(through, life, step))
        return made
    compared = [step for step in through.states if step > life.began]
    made.facts["compared"] = f"the states of {len(compared)} steps after the restart, equal to the bit"
    return made


def _by_itself(through: Life, first: Life, expected: Expected, made: Comparison) -> str | None:
    """Returns why the training cannot be compared if it differed from its reference before it was killed."""
    both = sorted(through.batches.keys() & first.batches.keys())
    if (step := next((step for step in both if through.batches[step] != first.batches[step]), None)) is not None:
        message = (
            f"the data does not repeat: with the same seed, the batch of step {step} was another one in a second "
            "training, before it was killed"
        )
        fix = "take all random numbers of sources and preprocessors from the seed that SeqIO passes"
        made.findings.append(Finding("RES03", Severity.WARNING, Stage.RESUME, message, fix=fix))
        return "what happens after a restart: the data does not repeat even without one"
    if (step := _first_difference(through, first)) is None:
        return None
    generator = ", as dropout uses the hardware's generator" if expected.hardware_rng else ""
    return (
        f"what happens after a restart: from the same data, a second training reached another state at step {step}, "
        f"before it was killed{generator}"
    )


def _wrong_start(through: Life, life: Life, expected: Expected) -> Finding | None:
    """Returns the finding if the training went on from another step than its newest complete checkpoint's."""
    wanted = expected.first_step if expected.saved is None else expected.saved
    if life.began == wanted:
        twin = next(
            (step for step, state in through.states.items() if _same_values(state, life.states[wanted])), wanted
        )
        if twin == wanted:
            return None
        message = f"training went on at step {wanted} with the values of step {twin}"
        return _error("RES01", message, "look at what sets the step of the restored state")
    newest = f"checkpoint_{expected.saved} was complete" if expected.saved is not None else "no checkpoint was complete"
    message = f"training went on from step {life.began}, and {newest} when it was killed"
    return _error("RES01", message, "look at MODEL_DIR, and at what restores and removes checkpoints there")


def _same_values(one: State, other: State) -> bool:
    """Tells whether the parameters of two states are equal; there must be some."""
    pairs = [(value, other.get(path)) for path, value in one.items() if path.startswith(_PARAMETERS)]
    return bool(pairs) and all(value == found for value, found in pairs)


def _wrong_arrays(saved: State, restored: State, paths: Sequence[str]) -> Finding:
    """Returns the finding about arrays that are not what they were when they were saved."""
    slots = [path for path in paths if path.startswith(_SLOTS)]
    kind = "optimizer slot" if len(slots) == len(paths) else "array"
    zeros = [path for path in paths if path in restored and restored[path][1] == 0 and saved.get(path, ("", 0))[1]]
    how = ", zeros now" if len(zeros) == len(paths) else ""
    shown = ", ".join(f"{path} ({_norms(saved, restored, path)})" for path in paths[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    message = f"not restored as it was saved: {_count(len(paths), kind)}{how}: {shown}{more}"
    where = "assignment_map, fallback_to_scratch and state transformations of utils.RestoreCheckpointConfig"
    return _error("RES02", message, f"look at {where}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _norms(saved: State, restored: State, path: str) -> str:
    before, after = (f"{state[path][1]:.6g}" if path in state else "missing" for state in (saved, restored))
    return f"norm {before} before, {after} after" if before != after else f"norm {before} in both"


def _same_batches(reference: History, resumed: History, life: Life, expected: Expected, made: Comparison) -> bool:
    """Adds what the batches show, and returns whether those after the restart are the reference's."""
    wanted, taken = reference.batches(), resumed.batches()
    examples = compare_examples(wanted, taken)
    made.facts["examples"] = f"trained twice: {examples.again}, never: {examples.never}"
    wrong = next((step for step in sorted(wanted) if step >= life.began and wanted[step] != taken.get(step)), None)
    if wrong is None:
        return True
    if expected.saves_dataset and life.began == expected.first_step and _is_one_ahead(reference.lives[-1], life):
        message = (
            f"T5X itself loses a batch here: it saves checkpoint_{life.began} when it has already taken the first "
            f"batch, so that a training that goes on from there begins with the second; {examples.never} examples are "
            "never trained"
        )
        fix = "nothing in the config: T5X does this only at the first step"
        made.findings.append(Finding("RES03", Severity.NOTE, Stage.RESUME, message, fix=fix))
        made.not_checked.append("the steps after a restart: they have other batches than without one")
    elif expected.saves_dataset:
        message = (
            f"the batch of step {wrong} is not the one that an uninterrupted training takes there, although "
            f"{_SAVE_DATASET} is on: {examples.again} examples are trained twice, {examples.never} never"
        )
        fix = (
            "look for state outside of the dataset's own iterator: a generator, a clock, a random number in a function"
        )
        made.findings.append(_error("RES03", message, fix))
    else:
        message = (
            f"after a restart, the data begins anew: of {sum(map(len, wanted.values()))} examples, {examples.again} "
            f"are trained twice and {examples.never} never"
        )
        fix = f"bind {_SAVE_DATASET} = True, for data from files or a cache; a Python generator has no position to save"
        made.findings.append(Finding("RES03", Severity.NOTE, Stage.RESUME, message, fix=fix))
        made.not_checked.append("the steps after a restart: they have other batches than without one")
    return False


def _is_one_ahead(through: Life, life: Life) -> bool:
    """Tells whether each batch is the one that the other training took a step later."""
    pairs = [(rows, through.batches[step + 1]) for step, rows in life.batches.items() if step + 1 in through.batches]
    return bool(pairs) and all(rows == later for rows, later in pairs)


def _first_difference(one: Life, other: Life) -> int | None:
    """Returns the first step that both reached with different states."""
    both = sorted(one.states.keys() & other.states.keys())
    return next((step for step in both if one.states[step] != other.states[step]), None)


def _wrong_step(through: Life, life: Life, step: int) -> Finding:
    paths = different(through.states[step], life.states[step])
    shown = ", ".join(f"{p} ({_norms(through.states[step], life.states[step], p)})" for p in paths[:_NAMED])
    message = (
        f"from the same state and the same batches, the restarted training reached another state at step {step}: "
        f"{_count(len(paths), 'array')}, such as {shown}"
    )
    fix = "look for random numbers and counters that a train step takes from elsewhere than the state and its step"
    return _error("RES04", message, fix)


def _error(code: str, message: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, Stage.RESUME, message, fix=fix)


def scalar_differences(
    wanted: Mapping[str, Mapping[int, float]], found: Mapping[str, Mapping[int, float]]
) -> Iterator[tuple[str, int, str]]:
    """Yields the tag and the step of each scalar that differs, and how; those that measure time are left out.

    Args:
      wanted: the scalars of the reference by tag and step.
      found: those of the resumed training.
    """
    for tag, values in wanted.items():
        if _is_of_time(tag):
            continue
        for step, value in values.items():
            other = found.get(tag, {}).get(step)
            if other is None or (other != value and not (math.isnan(value) and math.isnan(other))):
                shown = "missing" if other is None else f"{other:.6g}"
                yield tag, step, f"{tag} at step {step} is {value:.6g}, and {shown} after a restart"


def _is_of_time(tag: str) -> bool:
    return any(word in tag for word in ("timing", "seconds", "per_second", "uptime", "throughput"))
