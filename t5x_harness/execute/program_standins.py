"""Stand-ins that a process makes itself: commands of ``exec`` and jobs of ``serve`` with ``--standins=missing``.

Runs of the harness parse the config first and know what it needs. A program knows nothing before T5X asks for it, so it
makes each stand-in when a vocabulary is opened, a source is read or a checkpoint is restored, and prints a line on
standard error.
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
from typing import Any

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.buckets.emulated import Store, store
from t5x_harness.buckets.reach import is_unreachable
from t5x_harness.lint.t5_package import TASKS
from t5x_harness.spec import StandInPolicy
from t5x_harness.standins import t5_package
from t5x_harness.system.after_import import after_import
from t5x_harness.upstream.t5x import before_restoring
from t5x_harness.variables import STANDINS_VARIABLE

_BATCH = 512
"""The batch size that TFDS examples are generated for; the config's is not known when a source is read."""


def install() -> None:
    """Makes this process create stand-ins for what is in no bucket, once SeqIO and T5X are imported."""
    here, project = store(), os.environ.get(STANDINS_VARIABLE)
    if here is None or here.standins is None or not project:
        return
    made = _ProcessStandIns(here, here.standins, project)
    after_import("seqio.vocabularies", made.take_vocabularies)
    after_import("seqio.dataset_providers", made.take_sources)
    after_import("t5x.utils", made.take_checkpoints)
    after_import("datasets", made.take_rows)
    t5_package.install(
        StandInPolicy.MISSING, lambda: _say(f"package t5: it is not installed; tasks {', '.join(TASKS)}")
    )


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
        """A folder of this process alone, on the disk of the buckets, so that files can be moved in one step."""
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
        """Makes SeqIO open generated vocabularies if theirs are in no bucket."""
        from t5x_harness.standins.vocabulary_files import VocabularyFiles

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
            lambda path, what: _say(f"vocabulary {path}: {what}"),
        ).install()

    def _explain(self, what: str, path: str) -> None:
        """Reports once why something gets no stand-in: its bucket is the user's."""
        found, place = bucket_and_name(path), self._here.local(path)
        if what in self._explained or found is None or place is None or place.exists():
            return
        if self._here.is_declared(path):
            self._explained.add(what)
            why = (
                f"none for {what}: the bucket {found[0]} is there, so what it lacks is missing. Put it there, or leave "
                "the bucket to --create-buckets: what a bucket lacks that is made when it is first used is generated"
            )
            _say(why)
            atexit.register(_repeat_below_traceback, why, os.getpid())

    def take_sources(self, providers: ModuleType) -> None:
        """Makes SeqIO's TFDS sources read generated examples if their data is not here."""
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
                _say(f"none for TFDS data {made.name}{where}: no examples can be generated: {made.problem}")
            else:
                _say(f"TFDS data {made.name}{where}: examples generated from its features")

    def take_rows(self, _: ModuleType) -> None:
        """Makes ``load_dataset`` return the project's declared rows if the hub is not reachable."""
        from t5x_harness.settings.project import load_project
        from t5x_harness.standins import hugging_face
        from t5x_harness.standins.rows import Samples

        samples = [Samples.from_text(text) for text in load_project(Path(self._project)).samples]
        hugging_face.install(samples, StandInPolicy.MISSING, lambda name, what: _say(f"load_dataset {name}: {what}"))

    def take_checkpoints(self, utils: ModuleType) -> None:
        """Lets T5X's train, eval and infer find a checkpoint if the one that they restore is in no bucket."""
        before_restoring(utils, self._put_checkpoint)

    def _put_checkpoint(self, path: str, arguments: Mapping[str, Any]) -> None:
        if self._here.local(path) is None:
            return
        with self._alone():
            self._explain(f"checkpoint {path}", path)
            if not is_unreachable(path):
                return
            folder, _, name = path.rstrip("/").rpartition("/")
            if not (named := re.fullmatch(r"checkpoint_(\d+)", name)):
                _say(f"none for checkpoint {path}: its path does not end in checkpoint_ and a step")
                return
            self._write(path, folder, int(named[1]), arguments)

    def _write(self, path: str, folder: str, step: int, arguments: Mapping[str, Any]) -> None:
        import jax

        from t5x_harness.execute.checkpoint_standin import write_standin
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
        _say(f"checkpoint {path}: generated in the model's shapes, at step {step}")


def _repeat_below_traceback(why: str, owner: int) -> None:
    """Repeats the message below the long traceback of a process that ended with an error."""
    if os.getpid() == owner and getattr(sys, "last_value", None) is not None:
        _say(why)


def _say(what: str) -> None:
    # One write, line feed included: two processes share the terminal, and print makes two.
    sys.stderr.write(f"t5x-harness: stand-in: {what}\n")
    sys.stderr.flush()
