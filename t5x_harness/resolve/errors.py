"""Turns what a run raises into a :class:`~t5x_harness.spec.Finding`: what failed, where, the values, the mend.

A run stops with an exception of gin, SeqIO, T5X, JAX or the user's own module.  Its text often names no file, and its
traceback leads through a library that the user does not own.  :func:`explain` finds the line that is the user's (gin's
account of the binding, or the innermost frame in their own code) and rewords the texts that the failure catalogue
knows.  The traceback itself belongs into the run's log.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.lint.program import GinProgram
from t5x_harness.resolve.gin_config import GinConfig
from t5x_harness.spec import Finding, Location, Severity, Stage

__all__ = ["UserFrame", "explain", "log_traceback", "one_line", "root_cause", "user_frame"]

_LONGEST = 600


@dataclasses.dataclass(frozen=True)
class _Translation:
    """An exception text that the catalogue knows: its code and, in ``str.format`` with the groups, what to say."""

    code: str
    pattern: str
    message: str
    fix: str


# First match wins. Groups are by number: {1}.
_KNOWN: tuple[_Translation, ...] = (
    _Translation(
        "GIN12",
        r"Couldn't resolve selector (\S+); <module '__main__'.*?has no attribute (\w+)",
        "{1} is not part of the binary that this mode starts: it has no {2}",
        "run the config in the mode that it binds, or bind this mode's function",
    ),
    _Translation(
        "GIN14",
        r"Couldn't resolve selector (\S+?);? (?:.*?has no attribute ['`]?(\w+))?",
        "{1} does not exist: its module has no {2}",
        "correct the name",
    ),
    _Translation(
        "GIN13",
        r"Configurable '([^']+)' doesn't have a parameter named '([^']+)'",
        "{1} has no parameter {2}",
        "correct the parameter's name or remove the line",
    ),
    _Translation(
        "GIN15",
        r"No module named '([^']+)'",
        "module {1} cannot be imported",
        "put the folder that holds {1} on the Python path (python_path), or correct the import",
    ),
    _Translation(
        "GIN16",
        r"Unable to open file: (.+?)\. Searched config paths: (\[.*?\])",
        "the Gin file {1} is in none of {2}",
        "correct the path or add its folder to the search paths",
    ),
    _Translation(
        "GIN03",
        r"(?:([\w/.]+?)(?:/macro\.value)? set to `%gin\.REQUIRED` but not subsequently overridden"
        r"|Required bindings for `([^`]+)` not provided in config: (\[.*?\]))",
        "a required value is missing: {1}{2} {3}",
        "bind it, in the file or with the run",
    ),
    _Translation(
        "GIN18",
        r"No bindings specified for '([^']+?)(?:/gin\.macro)?' in config string",
        "%{1} is used and nothing gives it a value",
        "bind {1} = ..., or include the file that does",
    ),
    _Translation(
        "GIN10",
        r"No configurable matching '([^']+)'",
        "nothing that can be configured is called {1}",
        "import its module in this file, or correct the name",
    ),
    _Translation(
        "GIN22",
        r"Your Task/Mixture module contains gin configurables",
        "the module named by MIXTURE_OR_TASK_MODULE registers Gin configurables after the config was parsed",
        "import the module in the Gin file and set MIXTURE_OR_TASK_MODULE = None",
    ),
    _Translation(
        "GIN26",
        r"Unknown factor (\S+?)\.?(?:\s|$)",
        "the learning rate schedule has a factor {1}, which T5X does not know",
        "use constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay, decay_every or cosine_decay",
    ),
    _Translation(
        "SEQ01",
        r"'([^']+)' does not exist in any of the task cache directories",
        "the cached examples of {1} are in none of the cache folders",
        "set USE_CACHED_TASKS = False, or name the cache folder",
    ),
    _Translation(
        "SEQ03",
        r"Task '([^']+)' requires caching, but was called with `?use_cached=False",
        "task {1} can only be read from a cache, and use_cached is False",
        "cache the task, or take the required placeholder out of its preprocessors",
    ),
    _Translation(
        "SEQ04",
        r"No Task or Mixture found with name '([^']+)'",
        "no task or mixture is called {1}",
        "import the module that registers it, or correct the name",
    ),
    _Translation(
        "SEQ05",
        r"Attempting to register duplicate provider: (\S+)",
        "{1} is registered twice: its module is imported under two names",
        "import the module once, always under the same name",
    ),
    _Translation(
        "SEQ06",
        r"(?:Task dataset|Dataset) is missing an? ?expected (?:output )?feature (?:after|during) [\w ]+?: '?(\w+)'?",
        "the preprocessors leave no feature {1}, which the task declares as an output feature",
        "produce {1}, for instance by renaming the source's column",
    ),
    _Translation(
        "SEQ37",
        r"Task dataset has incorrect type for feature '([^']+)' after preprocessing: Got (\S+), expected (\S+)",
        "feature {1} is {2} after preprocessing and must be {3}",
        "tokenize it: seqio.preprocessors.tokenize belongs in the task's preprocessors",
    ),
    _Translation(
        "SEQ09",
        r"Model and Task vocabularies do not match",
        "the model's vocabulary and the task's differ",
        "use the task's vocabulary (path and extra_ids) as the model's",
    ),
    _Translation(
        "SEQ15",
        r"task_feature_lengths (?:is missing|contains extra) features[^:]*: (\{.*?\})",
        "TASK_FEATURE_LENGTHS does not fit the task's features: {1}",
        "give one length for each feature of the task",
    ),
    _Translation(
        "SEQ30",
        r"Preprocessor '?([\w.]+)'? .*'sequence_length' argument",
        "preprocessor {1} needs the feature lengths, and they are None here",
        "give task_feature_lengths",
    ),
    _Translation(
        "SEQ34",
        r"No file is found for the file pattern:? (\S+)",
        "no file matches {1}",
        "correct the pattern",
    ),
    _Translation(
        "MSH02",
        r"Batch size \(?(\d+)\)? must be divisible by (?:corresponding )?(?:data mesh size|[\w ]+) \(?(\d+)\)?",
        "batch size {1} is not divisible by the mesh's data axis, {2}",
        "use a multiple of {2}",
    ),
    _Translation(
        "MSH11",
        r"Batch size isn't divided evenly by num_microbatches",
        "the batch size is not divisible by num_microbatches",
        "make BATCH_SIZE a multiple of trainer.Trainer.num_microbatches",
    ),
    _Translation(
        "MSH12",
        r"Checkpoint period \((\w+)\), eval period \((\w+)\), and GC period \((\w+)\) must all be multiples",
        "checkpoint period {1}, eval period {2} and gc period {3} do not fit: the smallest must divide the rest",
        "make the larger periods multiples of the smallest",
    ),
    _Translation(
        "CKP01",
        r"Unexpected total_steps \((\d+)\) < checkpoint step \(?\s*\(?(\d+)",
        "TRAIN_STEPS is {1}, and the checkpoint to start from is already at step {2}",
        "TRAIN_STEPS counts from zero: give {2} plus the steps to train",
    ),
    _Translation(
        "SEQ19",
        r"'([^']+)' has no metrics for evaluation, or this mixture/task doesn't have provided split",
        "nothing of {1} can be evaluated: it has no metric_fns, or not this split",
        "give the task metric_fns and a split that it has",
    ),
    _Translation(
        "INF03",
        r"No chunk results found",
        "inference wrote no prediction: its input has no examples",
        "choose a split with examples",
    ),
    _Translation(
        "INF04",
        r"mode`? must be one of .*predict_with_aux.*(?:Got|not) '([^']+)'",
        "infer mode {1} does not exist",
        "use predict, score or predict_with_aux",
    ),
)

_METRIC_FAILURES: tuple[tuple[str, str, str], ...] = (
    ("SEQ22", r"[Dd]uplicate metric key", "give each metric function keys of its own"),
    ("INF12", r"could not convert string to float", "return numbers from metric functions"),
)


@dataclasses.dataclass(frozen=True)
class UserFrame:
    """The innermost place in the user's own code."""

    file: str
    line: int
    function: str


def log_traceback(error: BaseException) -> None:
    """Writes the whole traceback into the run's log, which is this process' standard error."""
    traceback.print_exception(error, file=sys.stderr)
    sys.stderr.flush()


def root_cause(error: BaseException) -> BaseException:
    """The exception that started it: the end of the chain of causes."""
    *_, last = _chain(error)
    return last


def user_frame(error: BaseException) -> UserFrame | None:
    """The innermost frame of the user's own code in the chain of causes; None if there is none."""
    found = None
    for link in _chain(error):
        for frame in traceback.extract_tb(link.__traceback__):
            if _is_users(frame.filename):
                found = UserFrame(_shown(frame.filename), frame.lineno or 0, frame.name)
    return _traced_frame(error, found) or found


def _traced_frame(error: BaseException, caller: UserFrame | None) -> UserFrame | None:
    """The user's line where TensorFlow traced their function: it rewrites the code and tells the line in words."""
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', str(root_cause(error)))
    users = [(file, int(line), name) for file, line, name in places if _is_users(file)]
    if not users:
        return None
    file, line, name = users[-1]
    function = name if name != "None" else caller.function if caller else "a function"
    return UserFrame(_shown(file), line, function)


def one_line(error: BaseException) -> str:
    """An exception's own text: without gin's trail, object addresses and line breaks."""
    text = re.split(r"\n\s*In (?:call to|file|bindings)", str(error), maxsplit=1)[0]
    if text.startswith("in user code:"):  # TensorFlow's account of a traced function ends with the error itself
        text = text.strip().splitlines()[-1]
    text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"a \1", text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def explain(error: BaseException, stage: Stage, config: GinConfig | None, program: GinProgram | None = None) -> Finding:
    """The finding for an exception that ended a stage.

    Args:
      error: what was raised.
      stage: the stage that it ended.
      config: the parsed config; None where parsing itself failed.
      program: the statements, to give gin's ``In file`` an include chain; taken from ``config`` if not given.
    """
    program = program or (config.program if config else None)
    cause = root_cause(error)
    frame = user_frame(error)
    texts = [str(link) for link in _chain(error)]
    where = _gin_location(texts, program)
    task = next((m for t in texts if (m := re.search(r"Failed to evaluate task:? ?'?([\w.:-]+?)'?:? ", t + " "))), None)
    if task:
        return _metric_failure(task.group(1), error, cause, frame, stage)
    for known in _KNOWN:
        for text in texts:
            if match := re.search(known.pattern, text, re.DOTALL):
                groups = ["", *(g or "" for g in match.groups())]
                return Finding(
                    code=known.code,
                    severity=Severity.ERROR,
                    stage=stage,
                    message=" ".join(known.message.format(*groups).split()),
                    location=where or _as_location(frame),
                    fix=known.fix.format(*groups),
                )
    name = type(cause).__name__
    if frame and (_raised_by_user_code(cause) or _traced_frame(error, None)):
        return Finding(
            "USR01",
            Severity.ERROR,
            stage,
            f"{frame.function} in {frame.file}:{frame.line} raised {name}: {one_line(cause)}",
            Location(frame.file, frame.line),
            fix=f"correct {frame.function}",
        )
    return Finding(
        "RUN01",
        Severity.ERROR,
        stage,
        f"T5X stopped with {name}: {one_line(cause)}",
        where or _as_location(frame),
        fix="see the traceback in the run's log",
    )


def _metric_failure(
    task: str, error: BaseException, cause: BaseException, frame: UserFrame | None, stage: Stage
) -> Finding:
    """A metric or postprocess function that raised, also where a background thread's error surfaced later."""
    code, fix = "SEQ20", "correct the metric function"
    functions = [f.name for link in _chain(error) for f in traceback.extract_tb(link.__traceback__)]
    if any("postprocess" in f for f in functions) and not any("metric_fn" in f for f in functions):
        code, fix = "SEQ24", "make the postprocess function accept any text that an untrained model may produce"
    for known, pattern, mend in _METRIC_FAILURES:
        if re.search(pattern, str(cause)):
            code, fix = known, mend
    late = ""
    if code == "SEQ20" and stage is Stage.TRAIN and any(f in functions for f in ("result", "_async_compute_metrics")):
        code = "SEQ21"
        late = (
            "; with concurrent_metrics this runs in a thread beside training, and T5X shows its failure at the next "
            "eval or at the end"
        )
    text = re.sub(r"^Failed to evaluate task:? ?\S+:? ?", "", one_line(cause))
    who = f"{frame.function} in {frame.file}:{frame.line}" if frame else "a metric function"
    raised = f"{who} raised {type(cause).__name__}: {text}"
    return Finding(
        code,
        Severity.ERROR,
        stage,
        f"the metrics of task {task} cannot be computed: {raised}{late}",
        _as_location(frame),
        fix=fix,
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, outermost first, those too that gin hides behind its own."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = _behind_gin(link) or link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _behind_gin(error: BaseException) -> BaseException | None:
    """The exception that gin raised again with its own account of where; that one has lost its causes."""
    text = vars(type(error)).get("__str__")
    if not (inspect.isfunction(text) and text.__module__ == "gin.utils"):
        return None
    hidden = inspect.getclosurevars(text).nonlocals.get("exception")
    return hidden if isinstance(hidden, BaseException) else None


def _gin_location(texts: list[str], program: GinProgram | None) -> Location | None:
    """The innermost file and line that gin names, with the includes that led there."""
    for text in texts:
        if match := re.search(r"In file \"([^\"]+)\", line (\d+)", text):
            file, line = match.group(1), int(match.group(2))
            for statement in program.statements if program else ():
                where = statement.location
                if where.line == line and Path(where.file).name == Path(file).name:
                    return where
            return Location(_shown(file), line)
    return None


def _as_location(frame: UserFrame | None) -> Location | None:
    return Location(frame.file, frame.line) if frame else None


def _is_users(file: str) -> bool:
    """Whether a source file belongs to the user: no installed library, no T5X, no part of the harness."""
    if file.startswith("<") or "__autograph_generated_file" in file:
        return False
    path = Path(file)
    ours = Path(__file__).parents[1]
    if path.is_relative_to(ours):
        return False
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in ("t5x", "seqio", "gin", "jax", "flax"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__path__", None):
            libraries.update(module.__path__)
    return not any(path.is_relative_to(folder) for folder in libraries)


def _raised_by_user_code(cause: BaseException) -> bool:
    """Whether the user's code is on the stack of the exception that started it."""
    return any(_is_users(frame.filename) for frame in traceback.extract_tb(cause.__traceback__))


def _shown(file: str) -> str:
    """A path as the user would write it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
