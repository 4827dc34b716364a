"""Decides whether a gin file is judged as a run, or as a fragment that other files include."""

from __future__ import annotations

import enum

from t5x_harness.lint.classify import Kind, classify_program
from t5x_harness.lint.program import GinProgram


class RunIf(enum.Enum):
    """When a config is judged as a run; otherwise it is a fragment, and what needs the whole run is not judged."""

    ALWAYS = "always"
    STARTED = "it binds train, evaluate or infer, or cannot be read"
    COMPLETE = "it leaves nothing open"


def why_fragment(program: GinProgram, run_if: RunIf) -> str | None:
    """What makes a config a fragment, as a sentence about the file; None for a run."""
    if run_if is RunIf.ALWAYS or (run_if is RunIf.STARTED and program.mode is not None):
        return None
    classification = classify_program(program)
    if classification.kind is Kind.RUN_CONFIG:
        return None
    files = ", ".join(program.spec.gin_files)
    if classification.kind is Kind.FRAGMENT:
        return classification.reason.replace(files, "the file", 1)  # the same of every fragment, to be said once
    return f"{files} binds none of train, evaluate and infer as far as it can be read"
