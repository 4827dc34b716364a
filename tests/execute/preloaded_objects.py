"""A run that reports its imports after the fork."""

import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.execute.preload import LATER
from t5x_harness.execute.process import open_run

LENGTHS = {"inputs": 32, "targets": 16}


class Watched:
    """A run between two looks at this process's modules."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> None:
        self._modules = set(sys.modules)
        self._run = open_run(argument, progress)

    def resolve_and_plan(self) -> list[str]:
        """Returns the outcomes of the two stages."""
        return [self._run.resolve()["outcome"], self._run.plan()["outcome"]]

    def build_pipelines(self) -> None:
        """Builds the pipelines of training and of evaluation without reading them."""
        for pack in (True, False):
            task = seqio.get_mixture_or_task("ref_reverse")
            data = task.get_dataset(LENGTHS, "train", shuffle=pack, seed=0)
            data = seqio.preprocessors.append_eos(data, task.output_features)
            seqio.EncDecFeatureConverter(pack=pack)(data, LENGTHS)

    def settings(self) -> dict[str, Any]:
        """Returns the settings for a process that traces much and runs little."""
        return {"optimizer": tf.config.optimizer.get_experimental_options(), "garbage": gc.get_threshold()[0]}

    def new(self) -> list[str]:
        """Returns the harness's stages and rules, and late imports, since the first look."""
        rooms = ("t5x_harness.execute.", "t5x_harness.plan.rules.", "t5x_harness.resolve.rules.", *LATER)
        return sorted(name for name in set(sys.modules) - self._modules if name.startswith(rooms))
