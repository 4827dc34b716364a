"""Every code that a text of this project may name, in one place, with its meaning and where it is found.

A code belongs to a rule of the first stages, a job on Vertex AI, a check of ``t5x-harness doctor``, the course of a
run, a text in the log of a job, or a failure that nothing finds, with the reason.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from t5x_harness.doctor import CHECKS
from t5x_harness.doctor.check import Check
from t5x_harness.findings.rule import Rule
from t5x_harness.google.vertex.validation.judging import service_rules
from t5x_harness.google.vertex.validation.rules import SpecRule, read_table
from t5x_harness.rulebook.rules import all_rules
from t5x_harness.symptoms.table import symptom_codes
from t5x_harness.vertex.job_rules import job_rules

RUN_CODES: Mapping[str, str] = {
    "AOT03": "the TPU compiler refuses a program, or ends while it compiles it",
    "AOT04": "this machine has too little memory to compile a program for a TPU",
    "AOT05": "a program is so close to the limit of a device's memory that few layers, or no code, do not tell",
    "POD22": "the hosts of a slice cannot be processes here: it has one, more than 32, or more than fit into memory",
    "POD23": "the hosts of a pod hold different values of an array that should be the same on all of them",
    "RES01": "a restarted training goes on from another step than that of the newest complete checkpoint",
    "RES02": "arrays of the train state are not restored as they were saved",
    "RES03": "a restarted training takes other batches than one that runs through",
    "RES04": "a restarted training reaches another state from the same state and batches",
    "RES05": "the metrics of a restarted training are not those of one that runs through",
    "RES06": "a restarted training leaves other checkpoints",
    "RES07": "a restarted training ends at another step",
    "RES08": "a fault that was ordered for a training cannot come",
    "RES09": "an inference or evaluation that was interrupted and went on leaves other results",
    "RUN01": "T5X or a library stopped, and no rule knows why: the line that raised, and the bindings it is about",
    "RUN02": "a stage did none of its work, so that it proved nothing, or only a part of it",
    "RUN03": "the last checkpoint is not of the step that training ended at",
    "RUN04": "a loss or a metric is not finite",
    "RUN05": "a restored checkpoint differs from the state that was saved",
    "RUN06": "a stage took longer than its limit, and was ended",
    "RUN07": "the process of a stage ended by itself: see the end of its log",
    "RUN08": "a stage could not be started, here or as a job: what it begins with is not there",
    "RUN09": "data is out of reach, on the hub or in a bucket, and no rows are declared to stand for it",
    "RUN10": "a library that this config needs, here and in the job, is not installed",
    "RUN11": "a job on a TPU's machine ran on the CPU",
    "RUN12": "the harness itself has a mistake: the fix says what to send us",
    "USR01": "a function of yours raised: file, line and error are named",
}
"""Codes of findings that no rule makes, because they report the course of a run; they cannot be silenced."""

AUXILIARY_CODES: Mapping[str, tuple[str, str]] = {
    "AUX01": ("error", "no mixture is named or read, so that no auxiliary job would start, or all would do the same"),
    "AUX06": ("error", "steps or folder of auxiliary jobs do not fit what they do: metrics would land elsewhere"),
    "AUX07": ("", "a job for a checkpoint that is still being written: only finished ones are taken"),
    "AUX08": ("", "a checkpoint that the train job removes under a job: with keep, it is held until its jobs end"),
    "AUX09": ("error", "an auxiliary evaluation that looks for checkpoints by itself, and passes over some"),
    "AUX10": ("note", "evaluation by teacher forcing, which stays in the train job"),
}
"""Codes of ``t5x-harness auxiliary``; those without a level are avoided. AUX02 to AUX05 are rules of lint."""

NOT_CAUGHT: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Not sound, or not in the config": {
        "CKP28": (
            "an array of a checkpoint that is read, but has other values than were written",
            "nothing in a checkpoint says what its values were; a missing part of an array is read as zeros, as "
            "tensorstore writes none for zeros",
        ),
        "GCS09": (
            "a bucket in the address of TENSORSTORE_GCS_HTTP_URL",
            "`t5x-harness doctor` finds it (ENV09): it is in the environment, not in the config",
        ),
    },
    "Does not happen here": {
        "MSH01": (
            "a mesh on CPU that has nothing to do with the slice's, so that green means nothing",
            "runs here are given the slice's own mesh",
        ),
    },
    "In what launches a run": {
        "VTX01": (
            "an image that was built anew with other versions, and fails without a log",
            "nothing in a spec says what is in the image; `t5x-harness doctor --image`, run inside it, says",
        ),
        "VTX17": (
            "a launcher that has no newer TPUs",
            "it is XManager's own table of accelerators; jobs that are sent from here do not go through it",
        ),
        "POD11": (
            "workers with different code",
            "every host of a job on Vertex AI runs its one image; pods that were started by hand are not seen",
        ),
    },
    "Needs the cloud": {
        "GCS01": ("an account that may not list the bucket", "permissions are known to the cloud alone"),
        "GCS06": ("a bucket in another region than the TPU", "neither region is in the config"),
        "POD01": (
            "a program that was started on one worker of several",
            "how it is started is not in the config",
        ),
        "POD03": (
            "a run that silently falls back to the CPU",
            "which libtpu the image has is not in the config",
        ),
    },
}
"""Failures that a check of config, data and shapes could find in principle, and why no rule does; by heading."""


@dataclasses.dataclass(frozen=True)
class JobCode:
    """A mistake between a config and its job on Vertex AI, which no rule about configs can find.

    Attributes:
      code: its code in the failure catalog.
      title: the mistake in a few words.
      why: the effect of the mistake and its cause.
      example: the language of both examples.
      bad: a job's config, or code, with the mistake.
      good: the same without the mistake.
      avoided: how ``t5x-harness submit`` avoids it; empty if only the spec matters.
      location: the region that the bad example is for, if the region is the mistake.
      good_location: the region that the good example is for.
    """

    code: str
    title: str
    why: str
    example: Literal["yaml", "python"]
    bad: str
    good: str
    avoided: str = ""
    location: str = ""
    good_location: str = ""

    @property
    def rules(self) -> tuple[SpecRule, ...]:
        """The rules about specs that find it."""
        return tuple(rule for rule in (*service_rules(), *job_rules()) if rule.code == self.code)

    @property
    def found_by(self) -> str:
        """Where it is found, in a word or two."""
        return "job spec" if self.example == "yaml" else "avoided by submit"

    @property
    def level(self) -> str:
        """``error``, ``warning``, or empty for a mistake that is not found but avoided."""
        if self.example != "yaml":
            return ""
        return "error" if any(rule.refuses for rule in self.rules) else "warning"


@functools.cache
def job_codes() -> Mapping[str, JobCode]:
    """Returns every mistake in a job by its code, sorted."""
    return {code: JobCode(code, **about) for code, about in sorted(read_table(__package__, "job_codes.toml").items())}


@dataclasses.dataclass(frozen=True)
class CodeSummary:
    """One code.

    Attributes:
      found_by: where it is found, in a word or two.
      level: ``error``, ``warning`` or ``note``; empty if nothing is reported under the code.
      title: the mistake, or the subject of a check, in a few words.
    """

    found_by: str
    level: str
    title: str


def rules_by_code() -> dict[str, list[Rule]]:
    """Returns the rules of each code, ordered by code and then by stage."""
    found: dict[str, list[Rule]] = {}
    for rule in all_rules():
        found.setdefault(rule.code, []).append(rule)
    return dict(sorted(found.items()))


def checks_by_code() -> dict[str, Check]:
    """Returns the checks of ``t5x-harness doctor``, ordered by code."""
    return {check.code: check for check in CHECKS}


def every_code() -> dict[str, CodeSummary]:
    """Returns every code: of rules, jobs, the doctor's checks, runs and logs, then of failures that nothing finds."""
    rules = rules_by_code().items()
    rows = (row for group in NOT_CAUGHT.values() for row in group.items())
    return {
        **{code: CodeSummary(", ".join(r.stage for r in of), of[0].severity, of[0].title) for code, of in rules},
        **{code: CodeSummary("job", mistake.level, mistake.title) for code, mistake in job_codes().items()},
        **{code: CodeSummary(check.command, "", check.title) for code, check in checks_by_code().items()},
        **{code: CodeSummary("any", "error", title) for code, title in RUN_CODES.items()},
        **{code: CodeSummary("auxiliary", *about) for code, about in AUXILIARY_CODES.items()},
        **{code: CodeSummary("log", "error", about.title) for code, about in symptom_codes().items() if about.title},
        **{code: CodeSummary("not found", "", title) for code, (title, _) in rows},
    }
