"""The one table of what can be set about runs: options of commands and of pytest, ini values, keys, variables.

pytest's options and ini values, the arguments of the commands, the keys of ``[tool.t5x_harness]`` and the tables of
docs/reference.md are made from :data:`RUNS` and :data:`JOBS`.  Defaults stand in :mod:`t5x_harness.settings.specs`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from t5x_harness.promotion.settings import DEFAULT_PARALLEL, UNSEEN
from t5x_harness.settings.numbers import buckets, count, from_zero, positive, switch
from t5x_harness.settings.project import SettingsError
from t5x_harness.spec import (
    DEFAULT_SLICE,
    READ_SECONDS,
    STAGE_SECONDS,
    AotMode,
    GcsPaths,
    Mode,
    RuntimeChoice,
    Stage,
    StandInPolicy,
)
from t5x_harness.variables import EXACT_NUMERICS_VARIABLE, TPU_AOT_VARIABLE, TPU_NUMERICS_VARIABLE, VERTEX_PREFIX
from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS

Kind = Literal["value", "flag", "list"]

_READS = ("lint", "plan", "run", "submit")
_PLANS = ("plan", "run", "submit")
_RUNS_HERE = ("plan", "run")


@dataclasses.dataclass(frozen=True)
class Option:
    """One thing that can be set.

    Attributes:
      field: of :class:`~t5x_harness.settings.specs.Given`, or of what jobs are sent with.
      help: what it sets, without the default: no capital at its start, no period at its end.
      default: what holds where nothing is set, in words; empty where the help says enough.
      kind: one value, a flag without one, or a list of values to which each use adds.
      shell: its names as an argument of commands; the first is the one that messages use.
      pytest: its names as an option of pytest; further ones are T5X's own.
      old: its earlier name there, which goes on working with a warning.
      ini: its name as an ini value of pytest.
      ini_type: as pytest's ``addini`` takes it.
      key: of ``[tool.t5x_harness]``.
      variable: of the environment.
      metavar: what stands for its value.
      choices: the values that there are.
      parse: reads one value; raises :exc:`argparse.ArgumentTypeError`.
      bare: the value that an argument of commands has where none is given; None where one must be.
      commands: those that take it.
      group: the heading that it stands under in their help.
    """

    field: str
    help: str
    default: str = ""
    kind: Kind = "value"
    shell: tuple[str, ...] = ()
    pytest: tuple[str, ...] = ()
    old: str = ""
    ini: str = ""
    ini_type: Literal["string", "linelist", "paths"] = "string"
    key: str = ""
    variable: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], Any] | None = None
    bare: str | None = None
    commands: tuple[str, ...] = ()
    group: str = "how to run it"

    @property
    def full_help(self) -> str:
        """The help with the default, as argparse takes it."""
        repeated = "; may be repeated" * (self.kind == "list")
        return f"{self.help}{repeated}{f' (default: {self.default})' if self.default else ''}".replace("%", "%%")

    def of_argparse(self) -> dict[str, Any]:
        """Returns the arguments of ``add_argument``; a value that is not given is None, or an empty list."""
        if self.kind == "flag":
            return {"action": "store_true", "default": None}
        about: dict[str, Any] = {
            "metavar": self.metavar,
            "choices": self.choices and tuple(map(str, self.choices)),
            "type": self.parse,
        }
        if self.kind == "list":
            about |= {"action": "append", "default": []}
        return {name: value for name, value in about.items() if value is not None}

    def value_of(self, source: str, value: Any) -> Any:
        """Returns the value that a variable or an ini file has for it; None for an empty one.

        Args:
          source: the name of the variable or of the ini value, for messages.
          value: what stands there.

        Raises:
          SettingsError: it is none of those that there are.
        """
        if not value or not isinstance(value, str):
            return value or None
        if self.choices and value not in self.choices:
            others, last = ", ".join(self.choices[:-1]), self.choices[-1]
            raise SettingsError(f"{source} must be {others} or {last}, not {value!r}")
        try:
            return self.parse(value) if self.parse else value
        except argparse.ArgumentTypeError as error:
            raise SettingsError(f"{source} {error}") from None


_GOLDEN, _PROCESS, _OUTPUT = "golden plan", "the process that runs it", "output"

RUNS: tuple[Option, ...] = (
    Option(
        "gin_files",
        "globs of Gin files to collect as runs, relative to the root folder",
        kind="list",
        ini="t5x_gin_files",
        ini_type="linelist",
        key="gin_files",
    ),
    Option(
        "runs", "runs of several Gin files or with bindings of their own, each with a name", kind="list", key="runs"
    ),
    Option("samples", "rows in the place of a task's data; a test declares them with sample_rows", key="samples"),
    Option(
        "prices",
        "US dollars for an hour of one chip by TPU generation, such as `v3 = 2.0`, for what steps compiled for the TPU "
        "would cost",
        "dated list prices",
        key="prices",
    ),
    Option(
        "bindings",
        "a Gin binding, such as 'BATCH_SIZE = 64', parsed after the files of every config; --gin.BATCH_SIZE=64 is the "
        "same",
        kind="list",
        shell=("--gin_bindings",),
        pytest=("--t5x-gin", "--gin_bindings"),
        ini="t5x_bindings",
        ini_type="linelist",
        key="bindings",
        metavar="'NAME = VALUE'",
        commands=_READS,
        group="what to run",
    ),
    Option(
        "search_paths",
        "folders where Gin files and includes are looked up, after the working directory and before T5X's own",
        kind="list",
        shell=("--gin_search_paths",),
        pytest=("--t5x-gin-search-paths", "--gin_search_paths"),
        ini="t5x_search_paths",
        ini_type="paths",
        key="search_paths",
        metavar="DIR,DIR",
        commands=_READS,
        group="what to run",
    ),
    Option(
        "python_path",
        "folders with the configs' own modules, before python_path of [tool.t5x_harness]",
        kind="list",
        shell=("--python-path",),
        pytest=("--t5x-python-path",),
        key="python_path",
        metavar="DIR,DIR",
        commands=_READS,
        group="what to run",
    ),
    Option(
        "run_mode",
        "what the config is for",
        "what it binds",
        shell=("--run_mode",),
        choices=tuple(Mode),
        commands=_READS,
        group="what to run",
    ),
    Option(
        "slice",
        "TPU slice whose mesh is laid over CPU devices, such as v3-8, v4-32 or v3:4x4",
        DEFAULT_SLICE,
        shell=("--slice",),
        pytest=("--t5x-slice",),
        ini="t5x_slice",
        key="slice",
        metavar="NAME",
        commands=_READS,
    ),
    Option(
        "runtime",
        "which T5X: the installed one, the embedded one, or auto, the installed one if there is any",
        RuntimeChoice.AUTO,
        shell=("--t5x-runtime",),
        pytest=("--t5x-runtime",),
        choices=tuple(RuntimeChoice),
        commands=_READS,
    ),
    Option(
        "gcs_root",
        "buckets that runs find there, DIR/my-bucket/x as gs://my-bucket/x; copied for each run, never written to",
        shell=("--gcs-root",),
        pytest=("--t5x-gcs-root",),
        old="--gcs-root",
        key="gcs_root",
        metavar="DIR",
        parse=buckets,
        commands=_READS,
    ),
    Option(
        "tfds_data_dir",
        "where TFDS data lies, as for T5X",
        shell=("--tfds_data_dir",),
        pytest=("--t5x-tfds-data-dir", "--tfds_data_dir"),
        metavar="DIR",
        commands=_PLANS,
    ),
    Option(
        "standins",
        "which vocabularies, checkpoints and datasets get a stand-in: none (off), those that cannot be reached here "
        "(missing), or all in a bucket or on a hub (all)",
        StandInPolicy.MISSING,
        shell=("--standins",),
        pytest=("--t5x-standins",),
        old="--standins",
        key="standins",
        choices=tuple(StandInPolicy),
        commands=_PLANS,
    ),
    Option(
        "read_seconds",
        "how long to read each split of the data, to find examples that cannot be preprocessed",
        f"{READ_SECONDS}, and no more than 10,000 examples",
        shell=("--read-seconds",),
        pytest=("--t5x-read-seconds",),
        key="read_seconds",
        metavar="SECONDS",
        parse=count,
        commands=_PLANS,
    ),
    Option(
        "gcs",
        "what gs:// and /gcs are to runs: an emulated Google Cloud on this machine, whose /gcs is a plain folder "
        "(folder) or behaves as Cloud Storage FUSE (fuse), or nothing (off)",
        "folder, where the extra google is installed",
        shell=("--gcs",),
        pytest=("--t5x-gcs",),
        old="--gcs",
        key="gcs",
        choices=tuple(GcsPaths),
        commands=_PLANS,
    ),
    Option(
        "model_dir",
        "keep the run's output here",
        "a temporary folder; one run only",
        shell=("--model_dir",),
        metavar="DIR",
        commands=_PLANS,
    ),
    Option(
        "full_size",
        "run at the sizes that the config names and on the slice's whole mesh, not shrunk",
        kind="flag",
        shell=("--full-size",),
        pytest=("--t5x-full-size",),
        commands=("run",),
    ),
    Option(
        "full_mesh",
        "run on the slice's whole mesh; without it, one of more than 8 devices is cut along its data axis",
        kind="flag",
        shell=("--full-mesh",),
        pytest=("--t5x-full-mesh",),
        commands=("run",),
    ),
    Option(
        "tpu_numerics",
        "compute steps with a TPU's default precision: operands of float32 matrix products are rounded to bfloat16, so "
        "that a model that only trains in float32 fails here; approximate",
        "off",
        kind="flag",
        shell=("--tpu-numerics",),
        pytest=("--t5x-tpu-numerics",),
        ini="t5x_tpu_numerics",
        key="tpu_numerics",
        variable=TPU_NUMERICS_VARIABLE,
        parse=switch,
        commands=("run",),
    ),
    Option(
        "exact_numerics",
        "compile steps as T5X does, so that losses equal those of T5X on this CPU to the bit; without it compiling is "
        "cheap, and single bits of a float may differ",
        "off",
        kind="flag",
        shell=("--exact-numerics",),
        pytest=("--t5x-exact-numerics",),
        ini="t5x_exact_numerics",
        key="exact_numerics",
        variable=EXACT_NUMERICS_VARIABLE,
        parse=switch,
        commands=("run",),
    ),
    Option(
        "aot",
        "compile the programs at full size with the TPU's own compiler, for the slice, before anything is executed; "
        "needs the extra aot. depths: two small depths, extrapolated; memory: all layers, until memory is assigned; "
        "full: to the machine's code; lower: no compiling. In pytest an item of each config, with the marker aot",
        f"not at all; --aot by itself and pytest -m aot are {AotMode.DEPTHS}",
        shell=("--aot",),
        pytest=("--t5x-aot",),
        ini="t5x_aot",
        key="aot",
        choices=tuple(AotMode),
        bare=AotMode.DEPTHS,
        commands=_RUNS_HERE,
    ),
    Option(
        "until",
        f"the last stage of each config, of {', '.join(Stage)}; tests that call t5x_run run all of theirs",
        "all",
        shell=("--until",),
        pytest=("--t5x-until",),
        metavar="STAGE",
        choices=tuple(Stage),
        parse=str,
        commands=("run",),
    ),
    Option(
        "golden",
        "compare bindings and plan of each config with those kept in PATH, and fail if they differ; written if it is "
        "not there. A file for one run (x.plan), or a folder with a file for each run",
        "plan_golden of [tool.t5x_harness]",
        shell=("--plan-golden",),
        pytest=("--t5x-plan-golden",),
        old="--plan-golden",
        key="plan_golden",
        metavar="PATH",
        commands=_RUNS_HERE,
        group=_GOLDEN,
    ),
    Option(
        "golden_update",
        "write the golden plans anew, to accept what changed",
        kind="flag",
        shell=("--plan-golden-update",),
        pytest=("--t5x-plan-golden-update",),
        old="--plan-golden-update",
        commands=_RUNS_HERE,
        group=_GOLDEN,
    ),
    Option(
        "timeout",
        "time limit of one stage of a run",
        f"{STAGE_SECONDS:g}",
        shell=("--timeout",),
        pytest=("--t5x-timeout",),
        metavar="SECONDS",
        parse=positive,
        commands=_RUNS_HERE,
        group=_PROCESS,
    ),
    Option(
        "ahead",
        "how many runs may work beside the one whose result comes next; 0 for one after the other",
        "as many as there are cores, at most 3; 0 at full size",
        shell=("--ahead",),
        pytest=("--t5x-ahead",),
        ini="t5x_ahead",
        metavar="N",
        parse=from_zero,
        commands=_RUNS_HERE,
        group=_PROCESS,
    ),
    Option(
        "in_process",
        "run configs in this process, for a debugger; one device count for all of them",
        kind="flag",
        shell=("--in-process",),
        pytest=("--t5x-in-process",),
        commands=_RUNS_HERE,
        group=_PROCESS,
    ),
    Option(
        "network",
        "whether runs, and smoke tests without the marker network, may reach beyond this machine; with allow, gs:// is "
        "the real Cloud Storage",
        "forbid",
        shell=("--network",),
        pytest=("--t5x-network",),
        ini="t5x_network",
        choices=("forbid", "allow"),
        commands=_RUNS_HERE,
        group=_PROCESS,
    ),
    Option(
        "ignore",
        "codes of findings to leave out, such as CKP14, or families of them such as CKP, besides those that "
        "[tool.t5x_harness] ignores",
        kind="list",
        shell=("--ignore",),
        pytest=("--t5x-ignore",),
        key="ignore",
        metavar="CODE,CODE",
        commands=_READS,
        group=_OUTPUT,
    ),
    Option(
        "select",
        "leave out all other codes; what broke a run is always shown",
        "select of [tool.t5x_harness], or every code",
        kind="list",
        shell=("--select",),
        pytest=("--t5x-select",),
        key="select",
        metavar="CODE,CODE",
        commands=_READS,
        group=_OUTPUT,
    ),
    Option(
        "strict",
        "take warnings for errors, which fail their stage",
        "strict of [tool.t5x_harness]",
        kind="flag",
        shell=("--strict",),
        pytest=("--t5x-strict",),
        key="strict",
        commands=_READS,
        group=_OUTPUT,
    ),
    Option(
        "github_annotations",
        "print findings as GitHub's workflow commands, which stand at their lines in a pull request; auto does so "
        "where GITHUB_ACTIONS=true",
        "auto",
        pytest=("--t5x-github-annotations",),
        ini="t5x_github_annotations",
        choices=("auto", "always", "never"),
    ),
)
"""What runs here are made with."""


def _target(name: str, help: str) -> Option:
    dashed = name.replace("_", "-")
    in_pytest = name in ("project", "location", "bucket", "image")
    return Option(
        name,
        help,
        shell=(f"--{dashed}",),
        pytest=(f"--t5x-vertex-{dashed}",) * in_pytest,
        old=f"--vertex-{dashed}" * in_pytest,
        ini=f"t5x_vertex_{name}" * in_pytest,
        key=f"vertex.{name}",
        variable=f"{VERTEX_PREFIX}{name.upper()}",
        metavar=name.upper(),
        commands=("submit",),
        group="where it goes",
    )


JOBS: tuple[Option, ...] = (
    Option(
        "vertex",
        "where jobs run: on Google's Vertex AI, or on this machine against an emulated one",
        "emulated in a shell of t5x-harness serve, and real elsewhere",
        shell=("--vertex",),
        pytest=("--t5x-vertex",),
        old="--vertex",
        ini="t5x_vertex",
        variable=VERTEX_PREFIX.removesuffix("_"),
        choices=("real", "emulated"),
        commands=("submit",),
        group="where it goes",
    ),
    _target("project", "id of the Google Cloud project that pays"),
    _target("location", "region that jobs run in, such as us-central1"),
    _target("bucket", "bucket in that region for staged files and results, by its name alone"),
    _target("image", "URI of a container image whose entry point is T5X's main.py"),
    _target("service_account", "account that the job acts as; TPU jobs have none of their own"),
    _target("experiment", "Vertex AI experiment that the run is tracked in: parameters, metrics, lineage"),
    _target("tensorboard", "Vertex AI TensorBoard that event files are uploaded to while waiting"),
    _target("image_python_path", "what the image's own PYTHONPATH holds, which staged modules would replace"),
    Option(
        "tpu",
        "the machine: fields such as accelerator_type = TPU_V3; for submit a slice, as v3-32, TPU_V3:32 in cores, or "
        "gcloud's keys, as machine-type=ct5lp-hightpu-4t,tpu-topology=4x4",
        "for submit the run's --slice",
        shell=("--accelerator",),
        ini="t5x_tpu",
        ini_type="linelist",
        key="tpu",
        metavar="NAME",
        commands=("submit",),
        group="the job",
    ),
    Option(
        "max_chip_hours",
        "the most chip-hours that one job may use up until its timeout",
        f"{DEFAULT_MAX_CHIP_HOURS:g}",
        shell=("--tpu-max-chip-hours",),
        pytest=("--t5x-tpu-max-chip-hours",),
        old="--tpu-max-chip-hours",
        metavar="N",
        parse=positive,
        commands=("submit",),
        group="the job",
    ),
    Option(
        "tpu_aot",
        "send nothing that does not fit its slice by the TPU's own compiler, which runs here before: how its programs "
        f"are compiled, as for --aot, or {UNSEEN} to send it unseen",
        f"{AotMode.DEPTHS} for what runs at full size, where libtpu is installed",
        shell=("--aot",),
        pytest=("--t5x-tpu-aot",),
        old="--tpu-aot",
        variable=TPU_AOT_VARIABLE,
        choices=(*AotMode, UNSEEN),
        bare=AotMode.DEPTHS,
        commands=("submit",),
        group="the job",
    ),
    Option(
        "parallel",
        "how many jobs may be there at once",
        str(DEFAULT_PARALLEL),
        pytest=("--t5x-tpu-parallel",),
        old="--tpu-parallel",
        metavar="N",
        parse=count,
    ),
    Option(
        "dry_run",
        "check and print each job and send none; promoted tests are skipped",
        kind="flag",
        shell=("--dry-run",),
        pytest=("--t5x-tpu-dry-run",),
        old="--tpu-dry-run",
        commands=("submit",),
        group="what to do",
    ),
    Option(
        "reuse",
        "take this job, by its name or number, for the test that it was sent for",
        kind="list",
        pytest=("--t5x-tpu-reuse",),
        old="--tpu-reuse",
        metavar="JOB",
    ),
)
"""What jobs on Vertex AI are sent with; ``submit`` has more of its own."""


def option(field: str) -> Option:
    """Returns the row of a field."""
    return next(row for row in (*RUNS, *JOBS) if row.field == field)


def add_to_command(
    parser: argparse.ArgumentParser, rows: Iterable[Option], command: str, groups: dict[str, argparse._ArgumentGroup]
) -> None:
    """Adds the arguments of a command to its parser, under their headings.

    Args:
      parser: of the command.
      rows: of the table.
      command: its name; rows of other commands are left out.
      groups: those that there are, by heading; new ones are added to it.
    """
    for row in rows:
        if row.shell and command in row.commands:
            if row.group not in groups:
                groups[row.group] = parser.add_argument_group(row.group)
            about = {"help": row.full_help, **row.of_argparse()}
            groups[row.group].add_argument(*row.shell, dest=row.field, **about)


def from_environment(
    rows: Iterable[Option], given: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Returns what variables say of the fields that a command has and that its arguments leave open.

    Args:
      rows: of the table.
      given: the parsed arguments, by field.
      environment: variables of the process.

    Raises:
      SettingsError: a variable has a value that there is not.
    """
    found = {
        row.field: row.value_of(row.variable, environment.get(row.variable, ""))
        for row in rows
        if row.variable and row.field in given and given[row.field] is None
    }
    return {field: value for field, value in found.items() if value is not None}


def with_values(arguments: Iterable[str]) -> list[str]:
    """Returns a command's arguments, with the value of those that stand for one without naming it.

    ``--aot run.gin`` would take the file for its value.
    """
    bare = {name: row.bare for row in (*RUNS, *JOBS) if row.bare is not None for name in row.shell}
    return [f"{argument}={bare[argument]}" if argument in bare else argument for argument in arguments]


def add_option(parser: argparse.ArgumentParser, field: str) -> None:
    """Adds one option to a command that has no other of the table."""
    row = option(field)
    parser.add_argument(*row.shell, dest=row.field, help=row.full_help, **row.of_argparse())


def reference(rows: Iterable[Option]) -> str:
    """Returns a table of options as Markdown, for docs/reference.md."""
    lines = [
        "| pytest | ini | `[tool.t5x_harness]` | environment | command | what it sets | default |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells: Iterator[Iterable[str]] = iter((row.pytest, [row.ini], [row.key], [row.variable], row.shell))
        names = [", ".join(f"`{name}`" for name in cell if name) or "-" for cell in cells]
        lines.append(f"| {' | '.join([*names, row.help, row.default or '-'])} |")
    return "\n".join(lines)
