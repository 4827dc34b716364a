"""T5X's programs in jobs of the emulated Vertex AI: images, commands, variables, and libraries to import early."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.google.vertex.jobs.programs import Programs
from t5x_harness.runtime.choice import find_runtime, program_environment
from t5x_harness.runtime.compile_cache import compile_cache_environment, compile_cheaply, default_cache_folder
from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice
from t5x_harness.system.texts import is_on
from t5x_harness.variables import (
    BRIEF_VARIABLE,
    EXACT_NUMERICS_VARIABLE,
    RUNTIME_VARIABLE,
    TPU_NUMERICS_VARIABLE,
)

if TYPE_CHECKING:
    from t5x_harness.google.vertex.validation.rules import SpecRule

# The libraries that ``t5x.main`` and its modes need; the job imports the modules of T5X itself in its own order.
_LIBRARIES = (
    "absl.app",
    "gin",
    "numpy",
    "jax",
    "flax.linen",
    "optax",
    "tensorflow",
    "seqio",
    "orbax.checkpoint",
    "clu.metric_writers",
    "tensorboard.summary",
    "tensorflow_datasets.core.reader",
)

_IMAGES = "*t5x*"
# A script in the images' checkout of T5X, as a word of a command or in a shell script.
_SCRIPT = r"(?:\./|/)?t5x/t5x/(?P<module>\w+)\.py"
_PYTHON = r"python[\d.]*"
_PYTHON_WORD, _SCRIPT_WORD, _SCRIPT_LINE = (
    # The pattern for a line omits the interpreter's folder: with it, matching a long word would take quadratic time.
    re.compile(pattern)
    for pattern in (rf"(?:\S*/)?{_PYTHON}", _SCRIPT, rf"(?P<python>{_PYTHON})[ \t]+{_SCRIPT}(?![\w.])")
)
_MODULE_LINE = re.compile(r"\s-m[ \t]+t5x\.\w+")


class T5XPrograms(Programs):
    """T5X's entry points and scripts, recognized by images or by commands that name them."""

    module = "t5x.main"
    libraries = _LIBRARIES

    def spec_rules(self) -> Sequence[SpecRule]:
        """Returns T5X's rules for the arguments in a spec."""
        from t5x_harness.vertex.job_rules import job_rules

        return job_rules()

    def entry_point(self, image: str) -> Sequence[str]:
        """Returns ``python -m t5x.main`` for an image with t5x in its own name, not just in the name of its project."""
        return ("python", "-m", self.module) if fnmatch.fnmatchcase(image.rpartition("/")[2], _IMAGES) else ()

    def with_modules(self, words: Sequence[str]) -> list[str]:
        """Replaces T5X's scripts, which are in the images' checkout, by modules."""
        made: list[str] = []
        for word in words:
            found = _SCRIPT_WORD.fullmatch(word)
            if found and made and _PYTHON_WORD.fullmatch(made[-1]):
                made += ["-m", f"t5x.{found['module']}"]
            else:
                made.append(_SCRIPT_LINE.sub(r"\g<python> -m t5x.\g<module>", word))
        return made

    def runs(self, words: Sequence[str]) -> bool:
        """Returns whether the words of a container run a program of T5X."""
        return any(word == "-m" and module.startswith("t5x.") for word, module in itertools.pairwise(words)) or any(
            _MODULE_LINE.search(word) for word in words
        )

    def folders(self) -> Mapping[str, Path]:
        """Returns the folder of T5X's repository, from which configs include files."""
        return {"t5x/t5x": Path(find_runtime().location)}

    def environment(
        self, base: Mapping[str, str], words_are_theirs: bool, slice: Slice | None, pod: Pod | None
    ) -> dict[str, str]:
        """Returns the same environment that ``t5x-harness exec`` gives its programs."""
        seen = program_environment(slice, find_runtime(), base.get(RUNTIME_VARIABLE, "auto"), base, pod)
        if words_are_theirs:
            if not is_on(os.environ.get(EXACT_NUMERICS_VARIABLE, "")):
                compile_cheaply(seen)  # as in local runs, so that both share the cache of compiled programs
            if pod is None:  # if there are several hosts, each saves its part of a checkpoint, as on a TPU
                seen[BRIEF_VARIABLE] = "1"
        seen[TPU_NUMERICS_VARIABLE] = ""  # the job represents one on a TPU, which has its own numerics
        return {**compile_cache_environment(default_cache_folder(os.environ)), **seen}


PROGRAMS = T5XPrograms()
