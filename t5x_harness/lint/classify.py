"""Tells run configs from fragments, which are files that only serve to be included."""

import dataclasses
import enum

from t5x_harness.gin.program import MAIN, GinProgram
from t5x_harness.gin.reading import snapshot_of
from t5x_harness.spec import Location, Mode
from t5x_harness.system.misspelling import closest

LEFT_TO_LAUNCHER = ("MODEL_DIR", "EVAL_OUTPUT_DIR", "INFER_OUTPUT_DIR", "CHECKPOINT_PATH")
"""The macros that T5X's files leave to the launch of a run: output folders, which a run here replaces by its own, and
the checkpoint to evaluate or infer with, which it replaces by a stand-in."""


class FileKind(enum.StrEnum):
    """The purpose of a gin file."""

    RUN_CONFIG = "run config"
    FRAGMENT = "fragment"
    BROKEN = "broken"


@dataclasses.dataclass(frozen=True)
class Classification:
    """The kind of a gin file, or of several that are run together, and the reason.

    Attributes:
      kind: the kind. A run config can be run as it is, a fragment is only included, and a broken file cannot be read
        far enough to know.
      mode: the mode that a run config runs in, or would run in if it left nothing open; None for the others.
      reason: why it is of this kind, with the place of the fault in a broken file.
      location: the line of the file that makes it a run config: its  binding of T5X's function, or the include that
        leads to it; None for the others.
    """

    kind: FileKind
    mode: Mode | None
    reason: str
    location: Location | None = None


def classify_program(program: GinProgram) -> Classification:
    """Classifies the statements that were read from one or more files."""
    name = ", ".join(program.spec.gin_files) or "the run"
    mode = program.mode
    if not program.complete:
        if mode is not None:
            reason = f"{name} binds {_short(program.entry)}, but cannot be read to the end"
            return Classification(FileKind.RUN_CONFIG, mode, reason, _start(program))
        problem = next(p for p in program.problems if p.loses_statements)
        where = "" if problem.named_by_user else f"{problem.location}: "
        detail = f" ({problem.detail})" if problem.detail else ""
        reason = f"{where}{problem.kind.value}: {problem.subject}{detail}, so {name} cannot be read to the end"
        return Classification(FileKind.BROKEN, None, reason)
    if (lacking := _lacking(program)) is not None:
        return Classification(FileKind.FRAGMENT, mode, f"{name} is not a run config: {lacking}")
    reason = f"{name} binds {_short(program.entry)} and leaves nothing open"
    return Classification(FileKind.RUN_CONFIG, mode, reason, _start(program))


def _lacking(program: GinProgram) -> str | None:
    """Returns what a fully read program lacks to be a run; None if it lacks nothing."""
    if program.mode is None:
        if program.entries:
            return f"it binds {_short(program.entries[0].target)}, which is none of train, evaluate and infer"
        return "it binds none of train, evaluate and infer"
    if missing := [m.name for m in program.required_macros if m.name not in LEFT_TO_LAUNCHER]:
        return f"it leaves {', '.join(missing)} to another file or the command line"
    if undefined := [name for name, _ in program.undefined_macros if closest(name, program.macros) is None]:
        return f"it uses {', '.join(undefined)}, which another file has to define"
    if unbound := unbound_parameters(program):
        return f"it does not bind {', '.join(f'{_short(program.entry)}.{name}' for name in unbound)}"
    return None


def _start(program: GinProgram) -> Location | None:
    """Returns the line that makes a file named by the user a run: a binding of the entry, or its include."""
    binding = next((b for b in program.entries if b.target == program.entry), None)
    if binding is None:
        return None
    return binding.location.included_from[0] if binding.location.included_from else binding.location


def unbound_parameters(program: GinProgram) -> tuple[str, ...]:
    """Returns the unbound parameters of the function that T5X calls, if they have no default."""
    entry = program.entry
    configurable = snapshot_of(program).find(entry) if entry is not None else None
    if entry is None or configurable is None:
        return ()
    return tuple(name for name in configurable.required if program.lookup(entry, name) is None)


def _short(target: str | None) -> str:
    return (target or "").removeprefix(f"{MAIN}.")


class RunIf(enum.Enum):
    """When a config is judged as a run. Otherwise it is a fragment, and rules that need the whole run are skipped."""

    ALWAYS = "always"
    STARTED = "it binds train, evaluate or infer, or cannot be read"
    COMPLETE = "it leaves nothing open"


def why_fragment(program: GinProgram, run_if: RunIf) -> str | None:
    """Returns why a config is a fragment, as a sentence about the file; None for a run."""
    if run_if is RunIf.ALWAYS or (run_if is RunIf.STARTED and program.mode is not None):
        return None
    classification = classify_program(program)
    if classification.kind is FileKind.RUN_CONFIG:
        return None
    files = ", ".join(program.spec.gin_files)
    if classification.kind is FileKind.FRAGMENT:
        # The same words for every fragment, so that they are reported once.
        return classification.reason.replace(files, "the file", 1)
    return f"{files} binds none of train, evaluate and infer as far as it can be read"
