"""The rules of ``job_rules.toml``: mistakes that the service accepts in a spec, but that fail the job later."""

import difflib
import functools
import re
from collections.abc import Iterator, Sequence

from t5x_harness.google.vertex.validation.checks import CHECKS, Values, checking, values_of
from t5x_harness.google.vertex.validation.judging import SpecVerdict, judge
from t5x_harness.google.vertex.validation.rules import Breach, SpecRule, Subject, read_table, rules_in
from t5x_harness.spec import Mode
from t5x_harness.vertex.job import T5XJob

_PROGRAMS = ("main", "train", "eval", "infer", "precompile", "export")
_RUN_MODES = (*(mode.value for mode in Mode), "precompile", "export")
_RENAMED = {"compile": "precompile", "predict": "infer", "test": "eval", "evaluate": "eval", "inference": "infer"}
_GIN_TWICE = re.compile(r"--gin\.(?:--gin\.|gin\.)(?P<rest>.*)", re.DOTALL)
_QUOTES = "\"'"
_QUOTED_FLAG = re.compile(rf"[{_QUOTES}]--(?:gin[._]|(?:run_mode|tfds_data_dir)=)")
_MODULE = re.compile(r"t5x[./](?P<name>\w+?)(?:\.py)?")


@functools.cache
def job_rules() -> tuple[SpecRule, ...]:
    """Returns all rules for T5X's jobs."""
    own = (data_dir_none, gin_prefix_twice, carried_over, run_mode)
    checks = {**CHECKS, **{broken.__name__: checking(values_of, broken) for broken in own}, "t5x_module": t5x_module}
    return rules_in(read_table(__package__, "job_rules.toml"), checks)


def verdict_of(job: T5XJob) -> SpecVerdict:
    """Checks a job's spec as Vertex AI will."""
    return judge(job.to_pb(), job.target.location, job_rules())


def refusals(job: T5XJob, verdict: SpecVerdict) -> str:
    """Returns all reasons why Vertex AI would refuse a job, one per line; empty if there are none."""
    if not verdict.violations:
        return ""
    found = "\n".join(f"  {violation}" for violation in verdict.violations)
    return f"{job.name}: Vertex AI refuses this job:\n{found}"


def data_dir_none(argument: str, _rule: SpecRule) -> Values | None:
    """Checks that the flag for the data folder is not the text ``None``."""
    return {"value": argument} if argument in ("--tfds_data_dir=None", "--tfds_data_dir='None'") else None


def gin_prefix_twice(argument: str, _rule: SpecRule) -> Values | None:
    """Checks that a binding's flag has its prefix only once."""
    match = _GIN_TWICE.fullmatch(argument)
    return {"value": argument, "fix": f"write --gin.{match['rest']}"} if match else None


def carried_over(argument: str, _rule: SpecRule) -> Values | None:
    """Checks that a flag has no quote or comma left from the list that it was copied from."""
    if _QUOTED_FLAG.match(argument):
        fault = "begins with a quote, so that it is not a flag, and T5X ends with Too many command-line arguments"
    elif argument.startswith("--gin.") and argument.rstrip().endswith(",") and "=" in argument:
        fault = "ends with a comma, which Gin cannot parse"
    else:
        return None
    bare = argument.strip().rstrip(",")
    bare = bare[1:] if bare[0] in _QUOTES else bare
    bare = bare[:-1] if bare[-1] in _QUOTES and bare.count(bare[-1]) % 2 else bare
    return {"value": argument, "fault": fault, "fix": f"write {bare}"}


def run_mode(argument: str, _rule: SpecRule) -> Values | None:
    """Checks that the run mode is one that T5X's main has."""
    flag, _, mode = argument.lstrip("-").partition("=")
    if flag != "run_mode" or not argument.startswith("-") or not mode or mode in _RUN_MODES:
        return None
    meant = _RENAMED.get(mode) or next(iter(difflib.get_close_matches(mode, _RUN_MODES, n=1)), "")
    return {"value": mode, "fix": f"write --run_mode={meant}" if meant else f"there are {', '.join(_RUN_MODES)}"}


def t5x_module(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that T5X has the program of T5X that the job runs."""
    for at, task in subject.resolve(rule.field):
        named = task.python_module if at.endswith("python_package_spec") else _program([*task.command, *task.args])
        match = _MODULE.fullmatch(named)
        if match and match["name"] not in _PROGRAMS:
            yield at, {"value": named, "fix": f"there are {', '.join(f't5x.{name}' for name in _PROGRAMS)}"}


def _program(command: Sequence[str]) -> str:
    """Returns the module after ``-m``, or the file after the interpreter; empty if the command names neither."""
    for index, word in enumerate(command[:-1]):
        if word == "-m":
            return command[index + 1]
        if re.fullmatch(r"(.*/)?python[\d.]*", word) and not command[index + 1].startswith("-"):
            return "/".join(command[index + 1].rsplit("/", 2)[-2:])
    return ""
