"""Runs of a mutant: by T5X itself, and by the harness."""

import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from t5x_harness.execute.output import checkpoints_in, scalars_in
from t5x_harness.gin.values import format_value
from t5x_harness.runs.pool import RunContext, RunPool, worker_for
from t5x_harness.runtime.choice import find_runtime
from t5x_harness.spec import Mode, RunResult, RunSpec
from t5x_harness.system.network import run_environment
from t5x_harness.workers.errors import RunRaised, RunTimedOut, WorkerError

from .checkpoints import PREPARATIONS, Preparation
from .constant import constant_predictions
from .mutant import CASES_OF_TASKS, PROJECT, Case, Mutant
from .oracle import FACTORY
from .values import program_of
from .verdict import Ending, Verdict, ending_of

_PARENT = str(Path(__file__).parents[1])
_NO_RATE = "utils.create_learning_rate_scheduler.base_learning_rate = 0.0"
_SECONDS = 120.0
_FOLDER = "FOLDER"
"""In a case's text, the folder of the campaign, where the checkpoint is."""

_START = "START"
"""In a mutant's text, the folder of checkpoints that is prepared for it."""


class Campaign:
    """Runs mutants; a context manager, which ends all processes.

    Args:
      folder: a folder for everything that runs write; what T5X did with a mutant is kept in it for the next time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.runtime = find_runtime()
        self._zygote = worker_for(self.runtime)
        self._pool = RunPool(timeout=_SECONDS)
        self._known = self.folder / "oracle"
        self._buckets = self.folder / "buckets"
        for each in (self._known, self._buckets):
            each.mkdir(parents=True, exist_ok=True)
        self._cases = {case.name: case for case in CASES_OF_TASKS}
        self._lock = threading.RLock()
        self._usual: dict[str, frozenset[str]] = {}
        self._unchanged: dict[str, Mapping[str, Any]] = {}
        self._idle: dict[str, Mapping[str, Any]] = {}

    def __enter__(self) -> Self:
        self._train_first()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zygote.close()
        self._pool.close(patient=False)

    @property
    def parent(self) -> str:
        """The folder with the package ``t5x``."""
        return str(Path(self.runtime.location).parent)

    def judge(self, mutant: Mutant) -> Verdict:
        """Returns what T5X does with a mutant."""
        case = self._cases[mutant.case]
        return self._judged(case, mutant, self.unchanged(case), self._idle.get(case.name))

    def unchanged(self, case: Case) -> Mapping[str, Any]:
        """Returns what the unchanged case writes.

        Raises:
          RuntimeError: T5X does not run it.
        """
        with self._lock:
            if case.name not in self._unchanged:
                self._unchanged[case.name] = self._written(case, case.text)
                if case.mode is Mode.TRAIN:
                    self._idle[case.name] = self._written(case, f"{case.text}{_NO_RATE}\n")
            return self._unchanged[case.name]

    def usual(self, name: str) -> frozenset[str]:
        """Returns the codes of what the harness notes about an unchanged case.

        Raises:
          RuntimeError: the harness refuses it.
        """
        with self._lock:
            if name not in self._usual:
                case = self._cases[name]
                result = self.run(Mutant(name, "unchanged", "", {case.file: case.text}, case.file, 0))
                if not result.passed:
                    raise RuntimeError(f"the harness refuses {name}: {[s.errors for s in result.stages]}")
                self._usual[name] = frozenset(f.code for stage in result.stages for f in stage.findings)
            return self._usual[name]

    def run(self, mutant: Mutant) -> RunResult:
        """Runs the harness on a mutant, as ``t5x-harness run`` does."""
        folder = self._laid_out(mutant, "harness")
        try:
            with self._pool.run(self._spec(mutant, folder), folder.parent / "run", RunContext()) as run:
                run.finish()
                return run.result()
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def _train_first(self) -> None:
        """Trains the checkpoint from which other cases start."""
        first = self.folder / "pretrained"
        if not first.is_dir():
            case = self._cases["pretrain"]
            self._written(case, case.text, keep=first)

    def _prepared(self, name: str) -> Path:
        """Returns a bucket with the folder of checkpoints that a preparation makes; it is made once.

        Raises:
          RuntimeError: T5X does not run what is to write the checkpoints.
        """
        bucket = self._buckets / f"mine-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        with self._lock:
            if not bucket.is_dir():
                made = self._made(PREPARATIONS[name])
                with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
                    folder = Path(shutil.copytree(made, Path(temporary) / "bucket" / "model"))
                    PREPARATIONS[name].change(folder)
                    folder.parent.rename(bucket)
        return bucket

    def _made(self, preparation: Preparation) -> Path:
        """Returns the folder into which T5X trains the checkpoints of a preparation."""
        case = self._cases["pretrain"]
        text = "".join((case.text, *(f"{line}\n" for line in preparation.lines)))
        model = (PROJECT / "model.gin").read_text(encoding="utf-8")
        for old, new in preparation.model:
            text, model = text.replace(old, new), model.replace(old, new)
        mutant = Mutant(case.name, "made", "", {case.file: text, "model.gin": model}, case.file, 0)
        folder = self.folder / "made" / mutant.key
        if not folder.is_dir():
            self._fine(case, mutant, keep=folder)
        return folder

    def _written(self, case: Case, text: str, keep: Path | None = None) -> Mapping[str, Any]:
        return self._fine(case, Mutant(case.name, "unchanged", "", {case.file: text}, case.file, 0), keep)

    def _fine(self, case: Case, mutant: Mutant, keep: Path | None = None) -> Mapping[str, Any]:
        verdict = self._judged(case, mutant, None, None, keep)
        if verdict.ending is not Ending.FINE:
            what = f"{case.name} ({mutant.kind})"
            raise RuntimeError(f"T5X does not run {what}: {verdict.ending} {verdict.text}")
        return verdict.values

    def _judged(
        self,
        case: Case,
        mutant: Mutant,
        unchanged: Mapping[str, Any] | None,
        idle: Mapping[str, Any] | None,
        keep: Path | None = None,
    ) -> Verdict:
        known = self._known / f"{mutant.key}.json"
        if known.is_file() and keep is None:
            return Verdict.from_json(json.loads(known.read_text(encoding="utf-8")))
        folder = self._laid_out(mutant, "oracle")
        output = folder.parent / "output"
        spec = self._spec(mutant, folder, f"{case.output} = {str(output)!r}")
        try:
            process = self._zygote.start(
                FACTORY,
                {"spec": spec.to_json()},
                log=folder.parent / "log",
                cwd=folder,
                env=run_environment(allowed=False),
                python_path=(_PARENT, str(folder)),
            )
            with process:
                said = process.call("run", timeout=_SECONDS)
        except RunTimedOut:
            verdict = Verdict(Ending.CUT)
        except RunRaised:
            raise
        except WorkerError as error:
            verdict = Verdict(Ending.CRASHES, str(error))
        else:
            if said["type"]:
                verdict = Verdict(Ending.DIES, f"{said['type']}: {said['error']}", tuple(said["frames"]))
            else:
                values = {**_values(output), "constant": [*said["constant"], *constant_predictions(output)]}
                ending = ending_of(values, unchanged, idle)
                is_equal = ending is Ending.SAME and self._bound(case, folder) == self._bound(case, PROJECT)
                verdict = Verdict(Ending.EQUAL if is_equal else ending, values=values)
        known.write_text(json.dumps(verdict.to_json()), encoding="utf-8")
        if keep is not None and output.is_dir():
            shutil.copytree(output, keep)
        shutil.rmtree(folder.parent, ignore_errors=True)
        return verdict

    def _bound(self, case: Case, folder: Path) -> tuple[dict[str, str], list[bytes]]:
        """Returns what a project's config binds, and the project's modules."""
        bound = {str(each): format_value(each.value) for each in program_of(case, self.parent, folder).final.values()}
        start = (str(self.folder), _FOLDER)
        modules = [file.read_bytes() for file in sorted(folder.glob("*.py"))]
        return {name: value.replace(*start) for name, value in bound.items()}, modules

    def _laid_out(self, mutant: Mutant, by: str) -> Path:
        """Writes the project of a mutant, and returns its folder."""
        folder = self.folder / f"{mutant.key}-{by}" / "project"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
        start = folder.parent / "start"
        if mutant.start:
            bucket = self._prepared(mutant.start)
            shutil.copytree(bucket, start)
        seen = f"gs://{bucket.name}" if mutant.in_bucket and by == "harness" else str(start)
        for file in folder.iterdir():
            text = mutant.files.get(file.name) or file.read_text(encoding="utf-8")
            text = text.replace(_FOLDER, str(self.folder)).replace(_START, f"{seen}/model")
            file.write_text(text, encoding="utf-8", newline="")
        return folder

    def _spec(self, mutant: Mutant, folder: Path, *bindings: str) -> RunSpec:
        case = self._cases[mutant.case]
        spec = RunSpec(
            (case.file,),
            bindings=bindings,
            mode=case.mode if bindings else None,
            slice=mutant.slice,
            cwd=str(folder),
        )
        return spec.with_settings(gcs_root=str(self._buckets)) if mutant.in_bucket else spec


def _values(output: Path) -> dict[str, Any]:
    """Returns what a run wrote: scalars, digests of predictions, and the steps of checkpoints."""
    scalars = {tag: {str(step): value for step, value in steps.items()} for tag, steps in scalars_in(output).items()}
    files = sorted(path for path in output.rglob("*.json*") if "checkpoint_" not in path.as_posix())
    digests = [hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in files]
    return {"scalars": scalars, "predictions": digests, "checkpoints": [c.step for c in checkpoints_in(output)]}
