"""The lint stage of a run: reads it, applies every rule, and reports what was read and what was not checked."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.work import judged, not_run
from t5x_harness.gin.problems import ProblemKind
from t5x_harness.gin.program import BINDINGS, MAIN, Binding, GinProgram, MacroBinding
from t5x_harness.gin.reading import snapshot_of
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.lint.classify import LEFT_TO_LAUNCHER, RunIf, why_fragment
from t5x_harness.lint.rule import Context
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Finding, Location, Outcome, Severity, Stage, StageResult


def lint_program(
    program: GinProgram,
    *,
    run_if: RunIf = RunIf.ALWAYS,
    on_slice: bool = False,
    begins_run: bool = False,
) -> StageResult:
    """Applies the rules to a run or a fragment that was read; imports neither T5X nor anything that the config names.

    Args:
      program: the run, or the fragment.
      run_if: the condition for judging it as a run; rules that need a whole run are not applied to a fragment.
      on_slice: whether the user named the run's slice; if it is only the default, nothing is judged by it.
      begins_run: whether further stages are to follow, so that the config has to bind something to run.

    Returns:
      The stage's result; ``exercised`` counts the statements that were read.
    """
    start = time.perf_counter()
    from t5x_harness.lint.rules import RULES

    fragment = why_fragment(program, run_if)
    context = Context(program, snapshot_of(program), get_slice(program.spec.slice) if on_slice else None)
    findings: list[Finding] = []
    left_out: list[str] = []
    for rule in RULES:
        # Such a rule looks at single Gin statements, not at what a run does with several values.
        judges_statements = rule.code.startswith("GIN") and not rule.whole_program
        if (rule.whole_program and not program.complete) or (fragment and not judges_statements):
            left_out.append(rule.code)
        else:
            findings.extend(rule.findings(context, context.place))
    not_checked = [*program.not_checked, *program.clone_doubts]
    if left_out:
        because = f"run, and {fragment}" if fragment else "config, and it cannot be read to the end"
        not_checked.append(f"{', '.join(_families(left_out))}: these rules need the whole {because}")
    not_checked.extend(_outside(program, context.snapshot))
    spec = program.spec
    own = _in_reading_order(program, on_own_lines(findings, program))
    # These errors hide statements, so the config must not be called fine.
    lost = {None if p.named_by_user else p.location for p in program.problems if p.loses_statements}
    broke = {f.code for f in findings if f.severity is Severity.ERROR and f.location in lost}
    if begins_run and program.mode is None:
        broke.add("GIN31")  # there would be nothing to do after lint
    ordered, silenced = split_silenced(own, spec.settings.ignore, spec.cwd, program.texts, kept=broke)
    result = StageResult(
        stage=Stage.LINT,
        outcome=Outcome.NOT_RUN,
        findings=ordered,
        facts=(*([("judged as", "a fragment")] if fragment else []), *_facts(program)),
        not_checked=tuple(not_checked),
        exercised=len(program.statements),
        seconds=time.perf_counter() - start,
        silenced=silenced,
    )
    if not result.errors and not program.statements:
        if any(problem.kind is ProblemKind.UNREACHABLE_FILE for problem in program.problems):
            return result
        if fragment:
            return not_run(result, f"{', '.join(spec.gin_files)} has no statement")
    return judged(result)


def missing_gin_files(program: GinProgram) -> tuple[str, ...]:
    """Returns the gin files that the user named but T5X would not find or read, each with the reason and the fix."""
    if program.complete:
        return ()
    from t5x_harness.lint.rules.gin_files import missing_file

    context = Context(program, snapshot_of(program))
    found = missing_file.findings(context, context.place)
    return tuple(f"{f.message}; {f.fix}" for f in found if f.location is None and f.severity is Severity.ERROR)


def _families(codes: Sequence[str]) -> tuple[str, ...]:
    """Shortens a list of codes: a complete family becomes one entry, such as ``CKP*``."""
    from t5x_harness.lint.rules import RULES

    others = {rule.code[:3] for rule in RULES if rule.code not in codes}
    return tuple(dict.fromkeys(code if code[:3] in others else f"{code[:3]}*" for code in codes))


def _outside(program: GinProgram, snapshot: Snapshot) -> Iterator[str]:
    """Yields the configurables whose names or parameters are not known for certain, one line per reason."""
    names: dict[str, dict[str, None]] = {}
    for target in dict.fromkeys(binding.target for binding in program.bindings if binding.resolved):
        if target.startswith(f"{MAIN}."):
            continue
        known = snapshot.find(target)
        doubt = snapshot.doubt(target)
        if doubt is None and (known is None or known.parameters is None):
            doubt = "known only once they are imported (resolve)"
        if doubt is not None:
            names.setdefault(doubt, {})[target] = None
    for doubt, targets in names.items():
        yield f"names and parameters of {', '.join(targets)}: {doubt}"


def _in_reading_order(program: GinProgram, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorts findings: errors first, then by file in the order of reading, line and code. It keeps equal ones once."""
    files = {name: index for index, name in enumerate((*program.files, BINDINGS))}
    severities = {severity: index for index, severity in enumerate(Severity)}

    def key(finding: Finding) -> tuple[int, int, int, str]:
        place = finding.location or Location("", 0)
        return severities[finding.severity], files.get(place.file, -1), place.line, finding.code

    return tuple(dict.fromkeys(sorted(findings, key=key)))


def _facts(program: GinProgram) -> list[tuple[str, str]]:
    bound = [s for s in program.statements if isinstance(s, (Binding, MacroBinding))]
    given = sum(s.location.file == BINDINGS for s in bound)
    facts = [
        ("mode", program.mode.value if program.mode else "none"),
        ("files read", f"{len(program.files)}: {', '.join(map(program.name_of, program.files))}"),
        ("bindings", f"{len(bound)}, of them {given} from the command line or the project"),
    ]
    open_macros = [m.name for m in program.required_macros if m.name in LEFT_TO_LAUNCHER]
    if open_macros:
        facts.append(("left to the launcher", ", ".join(open_macros)))
    return facts


def on_own_lines(findings: Iterable[Finding], program: GinProgram) -> tuple[Finding, ...]:
    """Moves findings in a library's gin file to the user's line that includes it; all others stay.

    Args:
      findings: findings of any stage; the message of a moved one names the place in the library, as an include does.
      program: the gin files of the run.
    """
    found = tuple(findings)
    if not found:
        return ()
    names = {
        file: name for file in program.texts if program.is_foreign(file) and (name := program.name_of(file)) != file
    }
    return tuple(_moved(_renamed(finding, names), program) for finding in found)


def own_line(place: Location, program: GinProgram) -> Location | None:
    """Returns the user's innermost line that led to a place; None if the user named a library's file."""
    chain = (*place.included_from, place)
    for depth in range(len(chain) - 1, -1, -1):
        if not program.is_foreign(chain[depth].file):
            return dataclasses.replace(chain[depth], included_from=chain[:depth])
    return None


def _renamed(finding: Finding, names: Mapping[str, str]) -> Finding:
    """Returns the finding with library files named in its text as in includes, not by their paths."""
    message, fix = finding.message, finding.fix or ""
    for file, name in names.items():
        message, fix = message.replace(file, name), fix.replace(file, name)
    if (message, fix or None) == (finding.message, finding.fix):
        return finding
    return dataclasses.replace(finding, message=message, fix=fix or None)


def _moved(finding: Finding, program: GinProgram) -> Finding:
    place = finding.location
    if place is None or place.file not in program.texts or not program.is_foreign(place.file):
        return finding
    shown = f"{program.name_of(place.file)}:{place.line}"
    message = finding.message if shown in finding.message else f"{finding.message} ({shown})"
    return dataclasses.replace(finding, location=own_line(place, program), message=message)
