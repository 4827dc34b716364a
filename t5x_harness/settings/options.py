"""All options of runs and of jobs, in the order in which help and docs/reference.md show them.

An option of a run is declared with its value: in :class:`~t5x_harness.spec.RunSpec` or
:class:`~t5x_harness.spec.RunSettings`. Options for all runs of a session and for jobs are declared here.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from t5x_harness.promotion.settings import DEFAULT_PARALLEL, UNSEEN
from t5x_harness.spec import STAGE_SECONDS, AotMode, RunSettings, RunSpec
from t5x_harness.spec.option import Option, OptionForm, option, options_of
from t5x_harness.spec.run import RUNNING
from t5x_harness.variables import TPU_AOT_VARIABLE, VERTEX_PREFIX
from t5x_harness.vertex.target import DEFAULT_MAX_CHIP_HOURS

_SUBMIT = ("submit",)


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """The settings for all runs of a session or a command together; the help of each field says what it sets."""

    gin_files: tuple[str, ...] = option(
        (),
        "globs of Gin files to collect as runs, relative to the root folder",
        ini=True,
        key=True,
        group="the project",
    )
    runs: tuple[Any, ...] = option(
        (),
        "runs of several Gin files or with bindings of their own, each with a name",
        key=True,
        form=OptionForm.TABLE,
        group="the project",
    )
    timeout: float = option(
        STAGE_SECONDS,
        "time limit of one stage of a run",
        pytest=True,
        metavar="SECONDS",
        commands=(*RUNNING, "fit"),
        group="the process that runs it",
    )
    ahead: int | None = option(
        None,
        "how many runs may work beside the one whose result comes next; 0 for one after the other",
        "as many as there are cores, at most 3; 0 at full size",
        pytest=True,
        ini=True,
        form=OptionForm.FROM_ZERO,
        metavar="N",
        commands=RUNNING,
        group="the process that runs it",
    )
    in_process: bool = option(
        False,
        "run configs in this process, for a debugger; one device count for all of them",
        pytest=True,
        commands=RUNNING,
        group="the process that runs it",
    )
    no_keep: bool = option(
        False,
        "end the process that has imported T5X with this call, instead of leaving it for the next ones for 15 minutes; "
        "T5X_HARNESS_KEEP=0 in the environment, or CI, does the same",
        pytest=True,
        commands=(*RUNNING, "fit", *_SUBMIT),
        group="the process that runs it",
    )
    network: str = option(
        "forbid",
        "whether runs, and smoke tests without the marker network, may reach beyond this machine; with allow, gs:// is "
        "the real Cloud Storage",
        pytest=True,
        ini=True,
        choices=("forbid", "allow"),
        commands=(*RUNNING, "fit"),
        group="the process that runs it",
    )
    github_annotations: str = option(
        "auto",
        "print findings as GitHub's workflow commands, which stand at their lines in a pull request; auto does so "
        "where GITHUB_ACTIONS=true",
        pytest=True,
        ini=True,
        choices=("auto", "always", "never"),
        group="annotations",
    )


def _target(help: str, variable: str, *, in_pytest: bool = True) -> Any:
    return option(
        None,
        help,
        pytest=in_pytest,
        old=in_pytest,
        ini=in_pytest,
        key=True,
        prefix="vertex",
        variable=f"{VERTEX_PREFIX}{variable}",
        form=OptionForm.TARGET,
        metavar=variable,
        commands=_SUBMIT,
        group="where it goes",
    )


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """The settings with which jobs are sent to Vertex AI; ``submit`` has additional options."""

    vertex: str | None = option(
        None,
        "where jobs run: on Google's Vertex AI, or on this machine against an emulated one",
        "emulated in a shell of t5x-harness serve, and real elsewhere",
        pytest=True,
        old=True,
        ini=True,
        variable=VERTEX_PREFIX.removesuffix("_"),
        choices=("real", "emulated"),
        commands=_SUBMIT,
        group="where it goes",
    )
    project: str | None = _target("id of the Google Cloud project that pays", "PROJECT")
    location: str | None = _target("region that jobs run in, such as us-central1", "LOCATION")
    bucket: str | None = _target("bucket in that region for staged files and results, by its name alone", "BUCKET")
    image: str | None = _target("URI of a container image whose entry point is T5X's main.py", "IMAGE")
    service_account: str | None = _target(
        "account that the job acts as; TPU jobs have none of their own", "SERVICE_ACCOUNT", in_pytest=False
    )
    experiment: str | None = _target(
        "Vertex AI experiment that the run is tracked in: parameters, metrics, lineage", "EXPERIMENT", in_pytest=False
    )
    tensorboard: str | None = _target(
        "Vertex AI TensorBoard that event files are uploaded to while waiting", "TENSORBOARD", in_pytest=False
    )
    image_python_path: str | None = _target(
        "what the image's own PYTHONPATH holds, which staged modules would replace",
        "IMAGE_PYTHON_PATH",
        in_pytest=False,
    )
    tpu: Any = option(
        None,
        "the machine: fields such as accelerator_type = TPU_V3; for submit a slice, as v3-32, TPU_V3:32 in cores, or "
        "gcloud's keys, as machine-type=ct5lp-hightpu-4t,tpu-topology=4x4",
        "for submit the run's --slice",
        shell="--accelerator",
        ini=True,
        key=True,
        form=OptionForm.RESOURCES,
        metavar="NAME",
        commands=_SUBMIT,
        group="the job",
    )
    max_chip_hours: float = option(
        DEFAULT_MAX_CHIP_HOURS,
        "the most chip-hours that one job may use up until its timeout",
        shell="--tpu-max-chip-hours",
        pytest=True,
        old=True,
        prefix="tpu",
        metavar="N",
        commands=_SUBMIT,
        group="the job",
    )
    tpu_aot: str | None = option(
        None,
        "send nothing that does not fit its slice by the TPU's own compiler, which runs here before: how its programs "
        f"are compiled, as for --aot, or {UNSEEN} to send it unseen",
        f"{AotMode.DEPTHS} for what runs at full size, where libtpu is installed",
        shell="--aot",
        pytest=True,
        old=True,
        variable=TPU_AOT_VARIABLE,
        choices=(*map(str, AotMode), UNSEEN),
        bare=AotMode.DEPTHS,
        commands=_SUBMIT,
        group="the job",
    )
    parallel: int = option(
        DEFAULT_PARALLEL,
        "how many jobs may be there at once",
        pytest=True,
        old=True,
        prefix="tpu",
        metavar="N",
    )
    dry_run: bool = option(
        False,
        "check and print each job and send none; promoted tests are skipped",
        pytest=True,
        old=True,
        prefix="tpu",
        commands=_SUBMIT,
        group="what to do",
    )
    reuse: tuple[str, ...] = option(
        (),
        "take this job, by its name or number, for the test that it was sent for",
        pytest=True,
        old=True,
        prefix="tpu",
        metavar="JOB",
    )


_HEADINGS = ("the project", "what to run", "how to run it", "golden plan", "the process that runs it", "output")


def _place(option: Option) -> int:
    return _HEADINGS.index(option.group) if option.group in _HEADINGS else len(_HEADINGS)


RUNS = tuple(sorted((*options_of(SessionOptions), *options_of(RunSpec), *options_of(RunSettings)), key=_place))
"""The options of runs on this machine."""

JOBS = options_of(JobSettings)
"""The options of jobs on Vertex AI."""


def option_of(field: str) -> Option:
    """Returns the option that a field declares."""
    return next(option for option in (*RUNS, *JOBS) if option.field == field)


def reference(options: Iterable[Option]) -> str:
    """Returns a table of options as Markdown, for docs/reference.md."""
    lines = [
        "| pytest | ini | `[tool.t5x_harness]` | environment | command | what it sets | default |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in options:
        cells: Iterator[Iterable[str]] = iter((row.pytest, [row.ini], [row.key], [row.variable], row.shell))
        names = [", ".join(f"`{name}`" for name in cell if name) or "-" for cell in cells]
        lines.append(f"| {' | '.join([*names, row.help, row.default or '-'])} |")
    return "\n".join(lines)
