"""Shrinks a parsed config as far as it still exercises mesh, packing, checkpoint, restore, eval and infer.

The rules rebind values in gin's own tables after parsing, at the binding that holds the literal. If ``total_steps`` is
``%TRAIN_STEPS``, the macro changes, so that a schedule that reads it also shrinks.
"""

import dataclasses
import math
from typing import Any

from t5x_harness.execute import sizes
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.resolved import EMBEDDING_ROWS, HEAD_DIM, HEADS, KV_HEADS, LAYERS, MLP, WIDTH, bound_integers
from t5x_harness.spec import Change, Mode, Reason

_FEW_HEADS = 8
_HEAD_TARGET = 8
_WIDTH_TARGET = 32
_MLP_TARGET = 64

_SEED = 0


@dataclasses.dataclass
class Shrinker:
    """Applies the rules to one config.

    Attributes:
      config: the config to shrink.
      axes: the mesh of the slice.
      first_step: the step of the checkpoint that the run starts from.
      vocabulary: the number of ids that the run's vocabularies can produce; None if unknown.
      steps: the train steps that the user asked for; None for the few that suffice.
      changes: the changes so far.
    """

    config: GinConfig
    axes: sizes.Axes
    first_step: int = 0
    vocabulary: int | None = None
    steps: int | None = None
    changes: list[Change] = dataclasses.field(default_factory=list)

    def shrink(self) -> None:
        """Applies every rule."""
        self._model()
        self._lengths()
        self._batches()
        if self.config.mode is Mode.TRAIN:
            self._steps()

    def fix_seed(self) -> None:
        """Seeds everything that T5X would seed from the clock, and binds the generator that T5X uses in that case.

        A run that repeats can be compared. The seed is also a constant of the compiled train step, which the clock
        would make T5X compile again each time.
        """
        if self.config.mode is not Mode.TRAIN:
            return
        for data in ("train_dataset_cfg", "train_eval_dataset_cfg"):
            order = self.config.find("seed", "DatasetConfig", self.config.scope_of(data) or "")
            if order and self.config.value(self.config.owner(order)) is None:
                self.rebind(order, _SEED, Reason.REPEATABLE)
        seed = BindingKey("", self.config.entry, "random_seed")
        if self.config.value(self.config.owner(seed)) is None:
            self.rebind(seed, _SEED, Reason.REPEATABLE)
            self.rebind(BindingKey("", self.config.entry, "use_hardware_rng"), True, Reason.REPEATABLE)

    def rebind(self, key: BindingKey, value: Any, why: Reason = Reason.SHRINK) -> bool:
        """Changes the literal behind a binding and notes the change; returns whether the value is a new one."""
        owner = self.config.owner(key)
        before = self.config.value(owner)
        if type(before) is type(value) and before == value:
            return False
        shown = repr(before) if self.config.is_bound(owner) else "the default"
        self.config.bind(owner, value)
        self.changes.append(Change(owner.short, shown, repr(value), why))
        return True

    def _model(self) -> None:
        kv_heads = max((n for _, n in bound_integers(self.config, KV_HEADS)), default=1)
        heads = {
            n: n if n <= _FEW_HEADS else sizes.small_heads(n, self.axes, kv_heads)
            for _, n in bound_integers(self.config, HEADS)
        }
        head_dims = {
            n: sizes.small_width(n, _HEAD_TARGET, sizes.Axes(1, 1)) for _, n in bound_integers(self.config, HEAD_DIM)
        }
        joined = {h * d: heads[h] * head_dims[d] for h in heads for d in head_dims}
        for key, n in list(bound_integers(self.config, HEADS)):
            self._reshape(key, heads[n])
        for key, n in list(bound_integers(self.config, HEAD_DIM)):
            self._reshape(key, head_dims[n])
        for names, target in ((WIDTH, _WIDTH_TARGET), (MLP, _MLP_TARGET)):
            for key, n in list(bound_integers(self.config, names)):
                # Models that derive the head size from the width still need the heads to divide it.
                divides = math.lcm(*(small for h, small in heads.items() if n % h == 0)) if names is WIDTH else 1
                small = sizes.small_width(n, target, self.axes, divides)
                exact = joined.get(n) if names is WIDTH else None
                fits = exact is not None and exact % self.axes.dividing(n) == 0
                self._reshape(key, exact if fits and exact is not None else small)
        for key, n in list(bound_integers(self.config, LAYERS)):
            self._reshape(key, min(n, sizes.LAYERS))
        if self.vocabulary is not None:
            for key, n in list(bound_integers(self.config, EMBEDDING_ROWS)):
                self._reshape(key, sizes.small_vocabulary(n, self.vocabulary, self.axes))

    def _reshape(self, key: BindingKey, value: int) -> None:
        before = self.config.value(self.config.owner(key))
        if value < before:
            self.rebind(key, value)

    def _lengths(self) -> None:
        for key, _ in list(self.config.items()):
            lengths = self.config.value(self.config.owner(key))
            plain = isinstance(lengths, dict) and all(type(n) is int for n in lengths.values())
            if key.parameter == "task_feature_lengths" and plain:
                self.rebind(key, sizes.small_lengths(lengths))

    def _batches(self) -> None:
        microbatches = self.config.find("num_microbatches")
        parts = self.config.value(self.config.owner(microbatches)) if microbatches else None
        if microbatches and isinstance(parts, int) and parts > 2 and parts % 2 == 0:
            self.rebind(microbatches, 2)
            parts = 2
        for key, _ in list(self.config.items()):
            batch = self.config.value(self.config.owner(key))
            if key.parameter == "batch_size" and type(batch) is int:
                self.rebind(key, sizes.small_batch(batch, self.axes, max(1, parts) if isinstance(parts, int) else 1))

    def _steps(self) -> None:
        entry = self.config.entry
        total = BindingKey("", entry, "total_steps")
        relative = BindingKey("", entry, "relative_steps")
        before = self.config.value(self.config.owner(total))
        wanted = self.config.value(self.config.owner(relative)) if self.config.is_bound(relative) else None
        why = Reason.STEPS if self.steps else Reason.SHRINK
        if isinstance(wanted, int) and wanted:
            steps = self.steps or min(wanted, sizes.STEPS)
            self.rebind(relative, steps, why)
        elif isinstance(before, int):
            steps = self.steps or min(before - self.first_step, sizes.STEPS)
            macro = self.config.owner(total)
            if self.rebind(total, self.first_step + steps, why):
                self._schedules(macro, before, self.first_step + steps)
        else:
            return
        half = max(1, steps // 2)
        for key, most in (
            (BindingKey("", entry, "eval_period"), half),
            (self.config.find("period", "SaveCheckpointConfig"), half),
            (BindingKey("", entry, "gc_period"), half),
            (BindingKey("", entry, "eval_steps"), 2),
        ):
            before = self.config.value(self.config.owner(key)) if key else None
            if key and isinstance(before, int) and before > most:
                self.rebind(key, most)
        self.rebind(BindingKey("", entry, "stats_period"), 1)
        listed = self.config.find("checkpoint_steps", "SaveCheckpointConfig")
        if listed and self.config.value(self.config.owner(listed)):
            self.rebind(listed, [self.first_step + half, self.first_step + steps])

    def _schedules(self, macro: BindingKey, before: int, after: int) -> None:
        """Scales the steps of every schedule that reads the train steps, so that its phases keep their order."""
        if not macro.is_macro:
            return
        readers = {
            (key.scope, key.selector)
            for key, value in self.config.items()
            if f"%{macro.scope}" in self.config.references(value)
            and not key.is_macro
            and key.selector != self.config.entry
        }
        for key, _ in list(self.config.items()):
            owner = self.config.owner(key)
            value = self.config.value(owner)
            if (key.scope, key.selector) not in readers or owner == macro or "steps" not in key.parameter:
                continue
            if type(value) is int:
                self.rebind(key, sizes.steps_in_proportion(value, before, after))
