"""What to run, and how: two values whose fields are the options of runs."""

import dataclasses
from pathlib import Path
from typing import Any, Self

from t5x_harness.spec.choices import AotMode, GcsPaths, Hosts, Mode, RuntimeChoice, Stage, StandInPolicy
from t5x_harness.spec.option import OptionForm, option, take_plain_strings
from t5x_harness.system.decode import JsonValue
from t5x_harness.variables import CPU_ISA_VARIABLE, EXACT_NUMERICS_VARIABLE, TPU_NUMERICS_VARIABLE

DEFAULT_SLICE = "v3-8"
"""The slice of runs that do not name one."""

READ_SECONDS = 3
"""The seconds for which resolve reads each split of the data, by default."""

STAGE_SECONDS = 600.0
"""The default time limit of one stage, in seconds."""

READING = ("lint", "plan", "run", "submit")
PLANNING = ("plan", "run", "submit")
RUNNING = ("plan", "run")
"""The commands that read configs, that plan them, and that run them on this machine."""


@dataclasses.dataclass(frozen=True)
class RunSettings(JsonValue):
    """How to run a config; the help of each field says what it sets."""

    # Each item is the text of a t5x_harness.standins.rows.Samples.
    samples: tuple[str, ...] = option(
        (),
        "rows in the place of a task's data; a test declares them with sample_rows",
        key=True,
        form=OptionForm.TABLE,
        group="the project",
    )
    prices: tuple[tuple[str, float], ...] = option(
        (),
        "US dollars for an hour of one chip by TPU generation, such as `v3 = 2.0`, for what steps compiled for the TPU "
        "would cost",
        "dated list prices",
        key=True,
        form=OptionForm.TABLE,
        group="the project",
    )
    gcs_root: str | None = option(
        None,
        "buckets that runs find there, DIR/my-bucket/x as gs://my-bucket/x; copied for each run, never written to",
        pytest=True,
        old=True,
        key=True,
        form=OptionForm.BUCKETS,
        metavar="DIR",
        commands=(*READING, "fit"),
    )
    tfds_data_dir: str | None = option(
        None,
        "where TFDS data lies, as for T5X",
        shell="--tfds_data_dir",
        pytest=("--t5x-tfds-data-dir", "--tfds_data_dir"),
        form=OptionForm.ADDRESS,
        metavar="DIR",
        commands=(*PLANNING, "fit"),
    )
    standins: StandInPolicy = option(
        StandInPolicy.MISSING,
        "which vocabularies, checkpoints and datasets get a stand-in: none (off), those that cannot be reached here "
        "(missing), or all in a bucket or on a hub (all)",
        pytest=True,
        old=True,
        key=True,
        commands=(*PLANNING, "fit"),
    )
    read_seconds: int = option(
        READ_SECONDS,
        "how long to read each split of the data, to find examples that cannot be preprocessed",
        f"{READ_SECONDS}, and no more than 10,000 examples",
        pytest=True,
        key=True,
        metavar="SECONDS",
        commands=(*PLANNING, "fit"),
    )
    gcs: GcsPaths = option(
        GcsPaths.FOLDER,
        "what gs:// and /gcs are to runs: an emulated Google Cloud on this machine, whose /gcs is a plain folder "
        "(folder) or behaves as Cloud Storage FUSE (fuse), or nothing (off)",
        "folder, where the extra google is installed",
        pytest=True,
        old=True,
        key=True,
        commands=(*PLANNING, "fit"),
    )
    model_dir: str | None = option(
        None,
        "keep the run's output here",
        "a temporary folder; one run only",
        shell="--model_dir",
        metavar="DIR",
        commands=PLANNING,
    )
    full_size: bool = option(
        False,
        "run at the sizes that the config names and on the slice's whole mesh, not shrunk",
        pytest=True,
        commands=("run",),
    )
    full_mesh: bool = option(
        False,
        "run on the slice's whole mesh; without it, one of more than 8 devices is cut along its data axis",
        pytest=True,
        commands=("run",),
    )
    hosts: Hosts = option(
        Hosts.ONE,
        "what the hosts of the slice are: one process with all devices (one), or a process for each host, which train, "
        "evaluate and infer together as on a TPU pod (emulated); on the whole mesh",
        pytest=True,
        ini=True,
        key=True,
        bare=Hosts.EMULATED,
        commands=("run",),
    )
    tpu_numerics: bool = option(
        False,
        "compute steps with a TPU's default precision: operands of float32 matrix products are rounded to bfloat16, so "
        "that a model that only trains in float32 fails here; approximate",
        "off",
        pytest=True,
        ini=True,
        key=True,
        variable=TPU_NUMERICS_VARIABLE,
        commands=("run",),
    )
    exact_numerics: bool = option(
        False,
        "compile steps as T5X does, so that losses equal those of T5X on this CPU to the bit; without it compiling is "
        "cheap, and single bits of a float may differ",
        "off",
        pytest=True,
        ini=True,
        key=True,
        variable=EXACT_NUMERICS_VARIABLE,
        commands=("run",),
    )
    cpu_isa: str | None = option(
        None,
        "compile steps for the instructions of this level only, sse4.2, avx2 or avx512, and with nothing that another "
        "CPU would choose otherwise, so that losses equal those of any machine that has them, to the bit",
        "for all instructions of this CPU",
        pytest=True,
        ini=True,
        key=True,
        form=OptionForm.CPU_ISA,
        metavar="LEVEL",
        variable=CPU_ISA_VARIABLE,
        commands=("run",),
    )
    aot: AotMode | None = option(
        None,
        "compile the programs at full size with the TPU's own compiler, for the slice, before anything is executed; "
        "needs the extra aot. depths: two small depths, extrapolated; memory: all layers, until memory is assigned; "
        "full: to the machine's code; lower: no compiling. In pytest an item of each config, with the marker aot",
        f"not at all; --aot by itself and pytest -m aot are {AotMode.DEPTHS}",
        pytest=True,
        ini=True,
        key=True,
        bare=AotMode.DEPTHS,
        commands=RUNNING,
    )
    resume: bool = option(
        False,
        "train once more, kill the process on the way, restart it, and compare it with the training that ran through: "
        "state, batches, metrics and files; or evaluate or infer so. In pytest an item of each config",
        "off",
        pytest=True,
        ini=True,
        key=True,
        commands=("run",),
    )
    preempt: str | None = option(
        None,
        "how the stage resume, which this turns on, ends the training: during=step, save, commit, eval, infer, restore "
        "or compile; how=kill, term, stop or gil; at_step=N; grace=SECONDS until it is killed; host=N of a pod; "
        "on=SLICE or PARTITIONS to go on with. Such as during=save,how=term",
        "by SIGKILL, one step after the first checkpoint",
        pytest=True,
        form=OptionForm.FAULT,
        metavar="FAULT",
        commands=("run",),
    )
    campaign: int | None = option(
        None,
        "let the stage resume, which this turns on, end the training by several faults, one after another, that this "
        "seed draws; a mistake is reported with its fault, in the form that --preempt takes",
        form=OptionForm.FROM_ZERO,
        metavar="SEED",
        commands=("run",),
    )
    times: int = option(20, "the number of faults of --campaign", metavar="N", commands=("run",))
    until: Stage | None = option(
        None,
        f"the last stage of each config, of {', '.join(Stage)}; tests that call t5x_run run all of theirs",
        "all",
        pytest=True,
        metavar="STAGE",
        commands=("run",),
    )
    # As an option, a file or a folder; in a run's own settings, always the run's file.
    plan_golden: str | None = option(
        None,
        "compare bindings and plan of each config with those kept in PATH, and fail if they differ; written if it is "
        "not there. A file for one run (x.plan), or a folder with a file for each run",
        "plan_golden of [tool.t5x_harness]",
        pytest=True,
        old=True,
        key=True,
        form=OptionForm.PATH,
        metavar="PATH",
        commands=RUNNING,
        group="golden plan",
    )
    plan_golden_update: bool = option(
        False,
        "write the golden plans anew, to accept what changed",
        pytest=True,
        old=True,
        commands=RUNNING,
        group="golden plan",
    )
    # In a run's own settings, all codes to leave out.
    ignore: tuple[str, ...] = option(
        (),
        "codes of findings to leave out, such as CKP14, or families of them such as CKP, besides those that "
        "[tool.t5x_harness] ignores",
        pytest=True,
        key=True,
        form=OptionForm.CODES,
        metavar="CODE,CODE",
        commands=(*READING, "fit"),
        group="output",
    )
    select: tuple[str, ...] = option(
        (),
        "leave out all other codes; what broke a run is always shown",
        "select of [tool.t5x_harness], or every code",
        pytest=True,
        key=True,
        form=OptionForm.CODES,
        joined="",
        metavar="CODE,CODE",
        commands=READING,
        group="output",
    )
    timings: bool = option(
        False,
        "show what each stage spent its time on: imports by package, tracing, compiling, input pipelines, checkpoints, "
        "your own modules",
        "off; pytest's -v does the same",
        pytest=True,
        commands=RUNNING,
        group="output",
    )
    strict: bool = option(
        False,
        "take warnings for errors, which fail their stage",
        "strict of [tool.t5x_harness]",
        pytest=True,
        key=True,
        commands=READING,
        group="output",
    )

    def __post_init__(self) -> None:
        take_plain_strings(self)


@dataclasses.dataclass(frozen=True)
class RunSpec(JsonValue):
    """What to run: gin files in order, bindings after them, the slice, the code, and how to run it.

    Attributes:
      gin_files: the paths as the user gave them, parsed in this order.
      bindings: gin statements parsed after the files, without ``--gin.``: ``TRAIN_STEPS = 8``.
      search_paths: the folders in which gin files and their includes are looked up; the first match wins.
      python_path: folders that are prepended to ``sys.path`` for the config's own modules.
      mode: the mode that the config is for; None to infer it from the config.
      slice: the TPU slice whose mesh is emulated, by name (``v3-8``) or topology (``v3:4x4``).
      runtime: the T5X that runs.
      cwd: the folder in which the run starts; relative paths of the config are relative to it.
      settings: how to run it.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = option(
        (),
        "a Gin binding, such as 'BATCH_SIZE = 64', parsed after the files of every config; --gin.BATCH_SIZE=64 is the "
        "same",
        shell="--gin_bindings",
        pytest=("--t5x-gin", "--gin_bindings"),
        ini=True,
        key=True,
        form=OptionForm.BINDINGS,
        joined="after",
        metavar="'NAME = VALUE'",
        commands=(*READING, "fit"),
        group="what to run",
    )
    search_paths: tuple[str, ...] = option(
        (),
        "folders where Gin files and includes are looked up, after the working directory and before T5X's own",
        shell="--gin_search_paths",
        pytest=("--t5x-gin-search-paths", "--gin_search_paths"),
        ini=True,
        key=True,
        form=OptionForm.ADDRESSES,
        metavar="DIR,DIR",
        commands=(*READING, "fit"),
        group="what to run",
    )
    python_path: tuple[str, ...] = option(
        (),
        "folders with the configs' own modules, before python_path of [tool.t5x_harness]",
        pytest=True,
        key=True,
        form=OptionForm.FOLDERS,
        metavar="DIR,DIR",
        commands=(*READING, "fit"),
        group="what to run",
    )
    mode: Mode | None = option(
        None,
        "what the config is for",
        "what it binds",
        shell="--run_mode",
        commands=(*READING, "fit"),
        group="what to run",
    )
    slice: str = option(
        DEFAULT_SLICE,
        "TPU slice whose mesh is laid over CPU devices, such as v3-8, v4-32 or v3:4x4",
        pytest=True,
        ini=True,
        key=True,
        form=OptionForm.SLICE,
        metavar="NAME",
        commands=READING,
    )
    runtime: RuntimeChoice = option(
        RuntimeChoice.AUTO,
        "which T5X: the installed one, the embedded one, or auto, the installed one if there is any",
        shell="--t5x-runtime",
        pytest=True,
        commands=(*READING, "fit"),
    )
    cwd: str = "."
    settings: RunSettings = dataclasses.field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        take_plain_strings(self)

    @property
    def name(self) -> str:
        """A short name for tables and folders: the stem of the last file."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"

    @property
    def resumes(self) -> bool:
        """Whether its training is also killed and restarted."""
        settings = self.settings
        return settings.resume or settings.preempt is not None or settings.campaign is not None

    def with_settings(self, **settings: Any) -> Self:
        """Returns the same run with some of its settings changed."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **settings))
