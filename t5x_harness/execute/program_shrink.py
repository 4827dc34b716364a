"""Programs of T5X that shrink their config themselves: commands of ``exec`` and jobs, with ``--shrink``.

Runs of the harness shrink a config that they have resolved and planned. A program knows nothing of its config before
T5X has parsed it, so it applies the same rules then, before Gin locks the config, and prints a line on standard error
for each change.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from t5x_harness.spec import Mode, Reason, RunSettings, RunSpec, Stage, StandInPolicy
from t5x_harness.system.after_import import after_import
from t5x_harness.upstream.t5x import before_finalizing
from t5x_harness.variables import SHRINK_VARIABLE

if TYPE_CHECKING:
    from t5x_harness.gin.config import GinConfig
    from t5x_harness.plan.state_shapes import StateShapes

ON, OFF = "1", "0"
"""The values of the variable that says whether programs of T5X shrink their config."""


def install() -> None:
    """Makes this process shrink the config of T5X's train, evaluate or infer once it is parsed."""
    if os.environ.get(SHRINK_VARIABLE) != ON:
        return
    shrinking = _Shrinking()
    after_import("t5x.gin_utils", shrinking.take_parsing)
    atexit.register(shrinking.at_end)


class _Shrinking:
    """What this process has shrunk."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._parsed = False
        self._kept = contextlib.ExitStack()

    def take_parsing(self, gin_utils: ModuleType) -> None:
        """Makes T5X's parsing of Gin flags end with a small config."""
        before_finalizing(gin_utils, self.shrink)

    def shrink(self) -> None:
        """Shrinks Gin's config. If that fails, T5X goes on: its own error is worth more than one from here."""
        self._parsed = True
        try:
            self._shrink()
        except Exception as error:  # whatever the user's config and code raise
            _say(f"stopped, and T5X goes on with the config as it is now: {type(error).__name__}: {error}")

    def at_end(self) -> None:
        """Reports that nothing was shrunk if T5X parsed nothing."""
        if os.getpid() != self._owner:
            return
        if not self._parsed and "t5x.utils" in sys.modules:
            _say("nothing: this program has not read Gin flags by t5x.gin_utils.parse_gin_flags")
        self._kept.close()

    def _shrink(self) -> None:
        from t5x_harness.execute import sizes
        from t5x_harness.execute.prepare import first_step_of
        from t5x_harness.execute.shrink import Shrinker
        from t5x_harness.execute.starting_checkpoint import StartMaker
        from t5x_harness.findings.stage_report import StageReport
        from t5x_harness.gin.config import GinConfig
        from t5x_harness.gin.program import GinProgram
        from t5x_harness.plan.checkpoint_source import find_initial
        from t5x_harness.resolve.datasets import few_examples, roles_of, tasks_of, vocabulary_ids
        from t5x_harness.resolve.resolved import EMBEDDING_ROWS, bound_integers

        mode = _mode()
        if mode is None:
            _say("nothing: the config binds none of train, evaluate and infer")
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
            # Whatever makes stand-ins deals with a missing checkpoint; otherwise it is T5X's error.
            spec = RunSpec((), mode=mode, settings=RunSettings(standins=StandInPolicy.OFF))
            made = StartMaker(config, start, first, full, shapes, config.build("partitioner"), spec)
            made.provide(self._folder(), report, in_bucket=False)
        if batch:
            tasks = [task for role in roles for task in tasks_of(role)]
            self._kept.enter_context(few_examples(tasks, batch))
        for change in (*shrinker.changes, *report.changes):
            why = "" if change.why is Reason.SHRINK else f"; {change.why}"
            _say(f"{change.binding} = {change.after} (was {change.before}{why})")
        if batch:
            _say(f"examples of each task that eval and infer read = {batch} (was all)")
        for doubt in report.not_checked:
            _say(f"not checked: {doubt}")

    def _folder(self) -> Path:
        """Makes a folder that is removed at the end of this process."""
        folder = Path(tempfile.mkdtemp(prefix="t5x-harness-shrink-"))
        self._kept.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder


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


def _mode() -> Mode | None:
    """Returns what the config that Gin holds is for."""
    from t5x_harness.gin.config import ENTRY_POINTS
    from t5x_harness.upstream.gin import bound_values

    bound = {selector for _, selector in bound_values()}
    return next((mode for mode, (_, name) in ENTRY_POINTS.items() if f"__main__.{name}" in bound), None)


def _say(what: str) -> None:
    # One write, line feed included: hosts of a pod share the terminal, and print makes two.
    sys.stderr.write(f"t5x-harness: shrink: {what}\n")
    sys.stderr.flush()
