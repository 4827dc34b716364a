"""Sets up programs that the harness starts to make their own stand-ins and to shrink their own config.

Runs of the harness parse the config first and know what it needs. A program, such as a command of ``exec`` or a job of
``serve``, knows nothing before T5X asks for it. So with ``--standins=missing`` it makes each stand-in when a vocabulary
is opened, a source is read or a checkpoint is restored; with ``--shrink`` it applies the rules of shrinking once T5X
has parsed its config, before Gin locks it. It prints a line on standard error for each of them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.buckets.emulated import Store, store
from t5x_harness.buckets.reach import is_unreachable
from t5x_harness.findings.printable import printable
from t5x_harness.lint.t5_package import TASKS
from t5x_harness.spec import Mode, Reason, RunSettings, RunSpec, Stage, StandInPolicy
from t5x_harness.standins import t5_package
from t5x_harness.system.after_import import after_import
from t5x_harness.upstream.t5x import before_finalizing, before_restoring
from t5x_harness.variables import SHRINK_VARIABLE, STANDINS_VARIABLE, START_VARIABLE

if TYPE_CHECKING:
    from t5x_harness.gin.config import GinConfig
    from t5x_harness.plan.state_shapes import StateShapes

_ON, _OFF = "1", "0"
"""The values of the variable that determines whether T5X's programs shrink their config."""

_BATCH = 512
"""The batch size that TFDS examples are generated for; the config's is not known when a source is read."""


def _say(about: str, what: str) -> None:
    # One write, line feed included: processes and hosts of a pod share the terminal, and print writes twice.
    sys.stderr.write(printable(f"t5x-harness: {about}: {what}\n"))
    sys.stderr.flush()


_say_standin, _say_shrunk = functools.partial(_say, "stand-in"), functools.partial(_say, "shrink")


def variables(project: str = "", *, shrink: bool = False) -> dict[str, str]:
    """Returns the environment variables for a program.

    Args:
      project: the folder of the project whose processes make stand-ins, with the pyproject.toml that declares rows for
        Hugging Face's datasets; empty for a program that makes none.
      shrink: whether programs of T5X shrink their config.
    """
    asked = bool(project) or shrink
    return {
        STANDINS_VARIABLE: project,
        SHRINK_VARIABLE: _ON if shrink else _OFF,
        START_VARIABLE: f"{__name__}:{install.__name__}" if asked else "",
    }


def install() -> None:
    """Makes this process create stand-ins for anything missing in its buckets, and shrink T5X's config, if asked to."""
    here, project = store(), os.environ.get(STANDINS_VARIABLE)
    if here is not None and here.standins is not None and project:
        made = _ProcessStandIns(here, here.standins, project)
        after_import("seqio.vocabularies", made.take_vocabularies)
        after_import("seqio.dataset_providers", made.take_sources)
        after_import("t5x.utils", lambda utils: before_restoring(utils, made.put_checkpoint))
        after_import("datasets", made.take_rows)
        t5_package.install(
            StandInPolicy.MISSING, lambda: _say_standin(f"package t5: it is not installed; tasks {', '.join(TASKS)}")
        )
    if os.environ.get(SHRINK_VARIABLE) == _ON:
        shrinking = _Shrinking()
        after_import("t5x.gin_utils", lambda gin_utils: before_finalizing(gin_utils, shrinking.shrink))
        atexit.register(shrinking.at_end)


class _ProcessStandIns:
    """The stand-ins of one process. Several processes may need the same ones, so buckets are written under a lock."""

    def __init__(self, here: Store, folder: Path, project: str) -> None:
        self._here = here
        self._folder = folder
        self._project = project
        self._threads = threading.RLock()
        self._explained: set[str] = set()

    @functools.cached_property
    def _own(self) -> Path:
        """A folder for this process alone, on the disk of the buckets, so that files can be moved in one step."""
        self._folder.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="process-", dir=self._folder))
        owner = os.getpid()
        atexit.register(lambda: shutil.rmtree(own, ignore_errors=True) if os.getpid() == owner else None)
        return own

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Excludes the other processes that use these buckets; one that dies releases the lock."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._threads, (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def take_vocabularies(self, _: ModuleType) -> None:
        """Makes SeqIO open generated vocabularies if the real ones are in no bucket."""
        from t5x_harness.standins.vocabularies import VocabularyFiles

        process = self

        class Files(VocabularyFiles):
            def file_for(self, path: str, extra_ids: int) -> str:
                with process._alone():
                    process._explain(f"vocabulary {path}", str(path))
                    return super().file_for(path, extra_ids)

        Files(
            self._folder / "vocabularies",
            StandInPolicy.MISSING,
            None,
            lambda path, what: _say_standin(f"vocabulary {path}: {what}"),
        ).install()

    def _explain(self, what: str, path: str) -> None:
        """Reports once that something gets no stand-in because its bucket is the user's."""
        found, place = bucket_and_name(path), self._here.local(path)
        if what in self._explained or found is None or place is None or place.exists():
            return
        if self._here.is_declared(path):
            self._explained.add(what)
            why = (
                f"none for {what}: the bucket {found[0]} is there, so what it lacks is missing. Put it there, or leave "
                "the bucket to --create-buckets: what a bucket lacks that is made when it is first used is generated"
            )
            _say_standin(why)
            atexit.register(_repeat_below_traceback, why, os.getpid())

    def take_sources(self, providers: ModuleType) -> None:
        """Makes SeqIO's TFDS sources read generated examples if their data is missing here."""
        original = providers.TfdsDataSource.tfds_dataset.fget
        seen: weakref.WeakSet[Any] = weakref.WeakSet()

        @functools.wraps(original)
        def tfds_dataset(source: Any) -> Any:
            with self._threads:
                if source not in seen:
                    seen.add(source)
                    self._make_up(source)
            return original(source)

        providers.TfdsDataSource.tfds_dataset = property(tfds_dataset)

    def _make_up(self, source: Any) -> None:
        from t5x_harness.standins.sources import generate_tfds
        from t5x_harness.upstream.seqio import tfds_splits

        for split in tfds_splits(source) or (None,):
            name, data_dir = source.tfds_dataset.get_split_params(split)
            if name and data_dir:
                self._explain(f"TFDS data {name} in {data_dir}", f"{data_dir.rstrip('/')}/{name.partition(':')[0]}")
        for made in generate_tfds(source, self._own / "tfds", StandInPolicy.MISSING, _BATCH):
            where = f" in {made.folder}" if made.folder else ""
            if made.problem:
                _say_standin(f"none for TFDS data {made.name}{where}: no examples can be generated: {made.problem}")
            else:
                _say_standin(f"TFDS data {made.name}{where}: examples generated from its features")

    def take_rows(self, _: ModuleType) -> None:
        """Makes ``load_dataset`` return the project's declared rows if the hub is not reachable."""
        from t5x_harness.settings.project import load_project
        from t5x_harness.standins.rows import Samples, install_rows

        samples = [Samples.from_text(text) for text in load_project(Path(self._project)).samples]
        install_rows(samples, StandInPolicy.MISSING, lambda name, what: _say_standin(f"load_dataset {name}: {what}"))

    def put_checkpoint(self, path: str, arguments: Mapping[str, Any]) -> None:
        """Writes the checkpoint that T5X's train, eval and infer restore if it is in no bucket."""
        if self._here.local(path) is None:
            return
        with self._alone():
            self._explain(f"checkpoint {path}", path)
            if not is_unreachable(path):
                return
            folder, _, name = path.rstrip("/").rpartition("/")
            if not (named := re.fullmatch(r"checkpoint_(\d+)", name)):
                _say_standin(f"none for checkpoint {path}: its path does not end in checkpoint_ and a step")
                return
            self._write(path, folder, int(named[1]), arguments)

    def _write(self, path: str, folder: str, step: int, arguments: Mapping[str, Any]) -> None:
        import jax

        from t5x_harness.execute.starting_checkpoint import write_standin
        from t5x_harness.plan.state_shapes import StateShapes
        from t5x_harness.standins.checkpoints import CheckpointKind, kind_at

        kind = kind_at(path, use_orbax=bool(arguments.get("use_orbax")))
        if kind is CheckpointKind.ORBAX and jax.process_count() > 1:
            kind = CheckpointKind.LEGACY  # orbax would wait for the other hosts, which wait for the lock
        shapes = StateShapes(arguments["train_state_initializer"], ())
        staging = self._own / "checkpoint"
        write_standin(folder, step, shapes, arguments["partitioner"], kind=kind, written_in=staging)
        place = self._here.local(path)
        assert place is not None
        self._here.claim(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(staging / f"checkpoint_{step}", place)
        shutil.rmtree(staging)
        _say_standin(f"checkpoint {path}: generated in the model's shapes, at step {step}")


def _repeat_below_traceback(why: str, owner: int) -> None:
    """Repeats the message after the long traceback of a process that ended with an error."""
    if os.getpid() == owner and getattr(sys, "last_value", None) is not None:
        _say_standin(why)


class _Shrinking:
    """The state of shrinking in this process."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._parsed = False
        self._kept = contextlib.ExitStack()

    def shrink(self) -> None:
        """Shrinks Gin's config. If that fails, T5X continues: its own error is worth more than one from here."""
        self._parsed = True
        try:
            self._shrink()
        except Exception as error:  # anything that the user's config and code raise
            _say_shrunk(f"stopped, and T5X goes on with the config as it is now: {type(error).__name__}: {error}")

    def at_end(self) -> None:
        """Reports that nothing was shrunk if T5X parsed nothing."""
        if os.getpid() != self._owner:
            return
        if not self._parsed and "t5x.utils" in sys.modules:
            _say_shrunk("nothing: this program has not read Gin flags by t5x.gin_utils.parse_gin_flags")
        self._kept.close()

    def _shrink(self) -> None:
        from t5x_harness.execute import sizes
        from t5x_harness.execute.prepare import first_step_of
        from t5x_harness.execute.shrink import Shrinker
        from t5x_harness.execute.starting_checkpoint import StartMaker
        from t5x_harness.findings.stage_report import StageReport
        from t5x_harness.gin.config import GinConfig
        from t5x_harness.gin.program import ENTRY_POINTS, GinProgram
        from t5x_harness.plan.checkpoint_source import find_initial
        from t5x_harness.resolve.datasets import few_examples, roles_of, tasks_of, vocabulary_ids
        from t5x_harness.resolve.resolved import EMBEDDING_ROWS, bound_integers
        from t5x_harness.upstream.gin import bound_values

        bound = {selector for _, selector in bound_values()}
        mode = next((mode for mode, (_, name) in ENTRY_POINTS.items() if f"__main__.{name}" in bound), None)
        if mode is None:
            _say_shrunk("nothing: the config binds none of train, evaluate and infer")
            return
        config = GinConfig(mode, GinProgram(RunSpec((), mode=mode), (), ()))
        report = StageReport(Stage.PLAN)
        mesh = config.build("partitioner").mesh.shape
        start = find_initial(config)
        first = first_step_of(config, start)
        rows = max((n for _, n in bound_integers(config, EMBEDDING_ROWS)), default=0)
        vocabulary = vocabulary_ids(config.build("model")) if rows > sizes.LARGE_VOCABULARY else None
        full = _state_shapes(config) if start.reachable else None
        shrinker = Shrinker(config, sizes.Axes(mesh["data"], mesh["model"]), first, vocabulary)
        shrinker.shrink()
        shrinker.fix_seed()
        roles = roles_of(config)
        batch = max((role.dataset.batch_size for role in roles if isinstance(role.dataset.batch_size, int)), default=0)
        if start.path and (shapes := _state_shapes(config)):
            # With stand-ins, a missing checkpoint is replaced; otherwise it is T5X's error.
            spec = RunSpec((), mode=mode, settings=RunSettings(standins=StandInPolicy.OFF))
            made = StartMaker(config, start, first, full, shapes, config.build("partitioner"), spec)
            folder = Path(tempfile.mkdtemp(prefix="t5x-harness-shrink-"))
            self._kept.callback(shutil.rmtree, folder, ignore_errors=True)
            made.provide(folder, report, in_bucket=False)
        if batch:
            tasks = [task for role in roles for task in tasks_of(role)]
            self._kept.enter_context(few_examples(tasks, batch))
        for change in (*shrinker.changes, *report.changes):
            why = "" if change.why is Reason.SHRINK else f"; {change.why}"
            _say_shrunk(f"{change.binding} = {change.after} (was {change.before}{why})")
        if batch:
            _say_shrunk(f"examples of each task that eval and infer read = {batch} (was all)")
        for doubt in report.not_checked:
            _say_shrunk(f"not checked: {doubt}")


def _state_shapes(config: GinConfig) -> StateShapes | None:
    """Returns the shapes of the train state for the config as it is now; None if no dataset has a batch size."""
    from t5x_harness.plan.state_shapes import model_inputs, state_shapes
    from t5x_harness.resolve.datasets import roles_of

    dataset = next((r.dataset for r in roles_of(config) if isinstance(r.dataset.batch_size, int)), None)
    if dataset is None:
        return None
    model, lengths = config.build("model"), dict(dataset.task_feature_lengths or {})
    inputs = model_inputs(model, lengths, dataset.batch_size, dataset.pack and config.mode is Mode.TRAIN)
    return state_shapes(model, config.build("partitioner"), inputs, with_optimizer=model.optimizer_def is not None)
