"""Command line options and ini values of the plugin, and the frozen value they are read into."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pytest

from t5x_harness.settings.numbers import positive_number
from t5x_harness.spec import GCS, READ_SECONDS, Stage

_WHEN = ("auto", "always", "never")
_NETWORK = ("forbid", "allow")

# House rules for help texts: start with a capital, no period at the end, name the default.


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line and the ini file say; ``[tool.t5x_harness]`` fills what they leave open."""

    runtime: str
    slice: str | None
    bindings: tuple[str, ...]
    search_paths: tuple[str, ...]
    tfds_data_dir: str | None
    gin_files: tuple[str, ...]
    full_size: bool
    full_mesh: bool
    in_process: bool
    ahead: int | None
    timeout: float
    ignore: tuple[str, ...]
    select: tuple[str, ...]
    strict: bool
    until: Stage | None
    python_path: tuple[str, ...]
    standins: str | None
    read_seconds: int | None
    gcs: str | None
    gcs_root: str | None
    golden: str | None
    golden_update: bool
    github_annotations: str

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """Reads them from pytest's configuration; the command line comes after the ini file, so it wins.

        Raises:
          pytest.UsageError: an ini value is none of those that there are.
        """
        return cls(
            runtime=config.getoption("t5x_runtime"),
            slice=config.getoption("t5x_slice") or config.getini("t5x_slice") or None,
            bindings=(*config.getini("t5x_bindings"), *config.getoption("t5x_gin")),
            search_paths=(*_search_paths(config), *map(str, config.getini("t5x_search_paths"))),
            tfds_data_dir=_from_here(config, config.getoption("tfds_data_dir") or "") or None,
            gin_files=tuple(config.getini("t5x_gin_files")),
            full_size=config.getoption("t5x_full_size"),
            full_mesh=config.getoption("t5x_full_mesh"),
            in_process=config.getoption("t5x_in_process"),
            ahead=config.getoption("t5x_ahead") if config.getoption("t5x_ahead") is not None else _ahead(config),
            timeout=config.getoption("t5x_timeout"),
            ignore=tuple(config.getoption("t5x_ignore")),
            select=tuple(config.getoption("t5x_select")),
            strict=config.getoption("t5x_strict"),
            until=config.getoption("t5x_until"),
            python_path=tuple(str(config.invocation_params.dir / d) for d in config.getoption("t5x_python_path")),
            standins=config.getoption("standins"),
            read_seconds=config.getoption("t5x_read_seconds"),
            gcs=config.getoption("gcs"),
            gcs_root=_folder(config, "gcs_root"),
            golden=config.getoption("plan_golden"),
            golden_update=config.getoption("plan_golden_update"),
            github_annotations=config.getoption("t5x_github_annotations") or _when(config, "t5x_github_annotations"),
        )

    def annotate(self, environment: Mapping[str, str]) -> bool:
        """Whether findings are to be printed as GitHub's workflow commands."""
        in_workflow = environment.get("GITHUB_ACTIONS") == "true"
        return self.github_annotations == "always" or (self.github_annotations == "auto" and in_workflow)


def add_options(parser: pytest.Parser) -> None:
    """Declares everything that :meth:`Options.of` reads."""
    group = parser.getgroup("t5x-harness", "T5X configs on an emulated TPU slice")
    group.addoption(
        "--t5x-runtime",
        choices=("auto", "installed", "embedded"),
        default="auto",
        help="Which T5X runs: the installed one, the embedded one, or auto, the installed one if there is any "
        "(default: auto)",
    )
    group.addoption(
        "--t5x-slice",
        metavar="NAME",
        help="TPU slice whose mesh is laid over CPU devices, such as v3-8, v4-32 or v3:4x4 (default: v3-8)",
    )
    group.addoption(
        "--t5x-gin",
        "--gin_bindings",
        metavar="BINDING",
        action="append",
        default=[],
        help="Gin binding parsed after the files of every config, such as 'BATCH_SIZE = 64'; --gin.BATCH_SIZE=64 is "
        "the same, as for T5X; may be repeated",
    )
    group.addoption(
        "--gin_search_paths",
        metavar="DIR,DIR",
        action="append",
        default=[],
        help="Folders where Gin files and includes are looked up, as for T5X; may be repeated",
    )
    group.addoption("--tfds_data_dir", metavar="DIR", help="Where TFDS data lies, as for T5X")
    group.addoption(
        "--t5x-ignore",
        metavar="CODE",
        action="append",
        default=[],
        help="Code of findings to leave out, such as CKP14, or a family of them such as CKP, besides those that "
        "[tool.t5x_harness] ignores; may be repeated",
    )
    group.addoption(
        "--t5x-select",
        metavar="CODE",
        action="append",
        default=[],
        help="Leave out all codes but this one, or this family; may be repeated (default: select of "
        "[tool.t5x_harness], or every code)",
    )
    group.addoption(
        "--t5x-strict",
        action="store_true",
        help="Take warnings for errors, which fail their stage (default: strict of [tool.t5x_harness])",
    )
    group.addoption(
        "--t5x-until",
        type=Stage,
        choices=tuple(Stage),
        metavar="STAGE",
        help=f"Last stage of each collected config, of {', '.join(Stage)}; tests that call t5x_run run all of theirs "
        "(default: all)",
    )
    group.addoption(
        "--t5x-python-path",
        metavar="DIR",
        action="append",
        default=[],
        help="Folder with the configs' own modules, before python_path of [tool.t5x_harness]; may be repeated",
    )
    group.addoption(
        "--standins",
        choices=("off", "missing", "all"),
        help="Which vocabularies, checkpoints and datasets get a stand-in: none (off), those that cannot be reached "
        "here (missing), or all in a bucket or on a hub (all) (default: missing)",
    )
    group.addoption(
        "--t5x-read-seconds",
        type=whole_seconds,
        metavar="SECONDS",
        help="How long to read each split of the data, to find examples that cannot be preprocessed (default: "
        f"{READ_SECONDS}, and no more than 10,000 examples)",
    )
    group.addoption(
        "--gcs",
        choices=GCS,
        help="What gs:// and /gcs are to runs: an emulated Google Cloud on this machine, whose /gcs is a plain folder "
        "(folder) or behaves as Cloud Storage FUSE (fuse), or nothing (off) (default: folder, where the extra google "
        "is installed)",
    )
    group.addoption(
        "--gcs-root",
        metavar="DIR",
        help="Buckets that runs find there, DIR/my-bucket/x as gs://my-bucket/x; copied for each run, never written to",
    )
    group.addoption(
        "--plan-golden",
        metavar="PATH",
        help="Compare each collected config's bindings and plan with those kept in PATH, and fail if they differ; "
        "written if it is not there. A file for one config (x.plan), or a folder with a file for each (default: "
        "plan_golden of [tool.t5x_harness])",
    )
    group.addoption(
        "--plan-golden-update", action="store_true", help="Write the golden plans anew, to accept what changed"
    )
    group.addoption(
        "--t5x-full-size",
        action="store_true",
        help="Run configs at the sizes they name and on the slice's whole mesh instead of shrunken",
    )
    group.addoption(
        "--t5x-full-mesh",
        action="store_true",
        help="Run configs on the slice's whole mesh; without it, one of more than 8 devices is cut along its data axis",
    )
    group.addoption(
        "--t5x-in-process",
        action="store_true",
        help="Run configs in pytest's own process, for a debugger; one device count for all of them",
    )
    group.addoption(
        "--t5x-ahead",
        type=number_of_runs,
        metavar="N",
        help="Collected runs that may work beside the one whose stages are being reported; 0 makes one run after the "
        "other (default: as many as there are cores, at most 3; 0 with --t5x-full-size)",
    )
    group.addoption(
        "--t5x-network",
        choices=_NETWORK,
        help="Whether smoke tests and runs may reach beyond this machine; a test marked network may (default: forbid)",
    )
    group.addoption(
        "--t5x-timeout",
        type=positive_seconds,
        default=600.0,
        metavar="SECONDS",
        help="Time limit of one stage of a run (default: 600)",
    )
    group.addoption(
        "--t5x-github-annotations",
        choices=_WHEN,
        help="Print findings as GitHub's workflow commands, which stand at their lines in a pull request; auto does so "
        "where GITHUB_ACTIONS=true (default: auto)",
    )
    parser.addini("t5x_gin_files", "Globs of Gin files to collect, relative to the root folder", "linelist", [])
    parser.addini("t5x_bindings", "Gin bindings parsed after the files of every config", "linelist", [])
    parser.addini("t5x_search_paths", "Folders where Gin files and includes are looked up", "paths", [])
    parser.addini("t5x_ahead", "Runs that may work beside the one being reported; see --t5x-ahead", "string", "")
    parser.addini("t5x_slice", "TPU slice whose mesh is emulated (default: v3-8)", "string", "")
    parser.addini(
        "t5x_network", "Whether smoke tests and runs may reach beyond this machine: forbid or allow (default: forbid)",
        "string", "forbid",
    )  # fmt: skip
    parser.addini(
        "t5x_github_annotations",
        "Print findings as GitHub's workflow commands: auto, always or never (default: auto)",
        "string",
        "auto",
    )


def take_gin_flags(arguments: list[str]) -> None:
    """Turns each ``--gin.NAME=VALUE`` of a command line into an option that pytest knows.

    Raises:
      pytest.UsageError: one has not this form.
    """
    if any(argument.startswith("--gin.") for argument in arguments):
        from t5x_harness.commands.arguments import UsageError, rewrite_gin

        try:
            arguments[:] = rewrite_gin(arguments)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None


def network_policy(config: pytest.Config) -> str:
    """``forbid`` or ``allow``: what holds for tests without the ``network`` marker.

    Raises:
      pytest.UsageError: the ini value is neither.
    """
    return config.getoption("t5x_network") or _one_of(_NETWORK, config, "t5x_network")


def _search_paths(config: pytest.Config) -> Iterator[str]:
    """The folders that the command line names."""
    for folders in config.getoption("gin_search_paths"):
        yield from (_from_here(config, folder) for folder in folders.split(",") if folder)


def _from_here(config: pytest.Config, folder: str) -> str:
    """A folder as runs find it, which work in the root folder: pytest may have been called in another one."""
    here = config.invocation_params.dir
    if not folder or "://" in folder or here == config.rootpath:
        return folder
    return str(here / folder)


def _folder(config: pytest.Config, name: str) -> str | None:
    """A folder named on the command line, absolute.

    Raises:
      pytest.UsageError: it is not there.
    """
    given: str | None = config.getoption(name)
    if given is None:
        return None
    folder = config.invocation_params.dir / given
    if not folder.is_dir():
        raise pytest.UsageError(f"--{name.replace('_', '-')}: there is no folder {folder}")
    return str(folder)


def _when(config: pytest.Config, name: str) -> str:
    return _one_of(_WHEN, config, name)


def _one_of(values: Sequence[str], config: pytest.Config, name: str) -> str:
    value: str = config.getini(name)
    if value not in values:
        raise pytest.UsageError(f"{name} must be {', '.join(values[:-1])} or {values[-1]}, not {value!r}")
    return value


def _ahead(config: pytest.Config) -> int | None:
    text: str = config.getini("t5x_ahead")
    return number_of_runs(text) if text else None


def number_of_runs(text: str) -> int:
    """Parses how many runs may work ahead.

    Raises:
      pytest.UsageError: it is no number, or below zero.
    """
    if not text.isdecimal():
        raise pytest.UsageError(f"--t5x-ahead and t5x_ahead must be a number of runs from 0 up, not {text!r}")
    return int(text)


def whole_seconds(text: str) -> int:
    """Parses a number of seconds.

    Raises:
      pytest.UsageError: it is no whole number from 1 up.
    """
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"--t5x-read-seconds must be a whole number of seconds from 1 up, not {text!r}")
    return int(text)


def positive_seconds(text: str) -> float:
    """Parses a time limit.

    Raises:
      pytest.UsageError: it is not a positive number.
    """
    seconds = positive_number(text)
    if seconds is None:
        raise pytest.UsageError(f"--t5x-timeout must be a positive number of seconds, not {text!r}")
    return seconds
