"""The work of a forked process in these tests: ``t5x-harness cache``, and reading its caches with SeqIO."""

import contextlib
import importlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class CacheProcess:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        del argument, progress

    def cache(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Runs the command; returns its exit status and its output."""
        from t5x_harness.commands.main import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["cache", *arguments])
        return status, out.getvalue(), err.getvalue()

    def compare(self, module: str, task: str, folder: str) -> dict[str, list[Any]]:
        """Returns the number of cached examples in each split, and the examples that differ from the uncached ones.

        Both are read as a run reads them: through the preprocessors after the cache, and trimmed.
        """
        import seqio

        importlib.import_module(module)
        seqio.add_global_cache_dirs([folder])
        found = seqio.TaskRegistry.get(task)
        lengths = dict.fromkeys(found.output_features, 64)

        def read(split: str, cached: bool) -> Counter[str]:
            dataset = found.get_dataset(lengths, split, use_cached=cached, shuffle=False, seed=3)
            return Counter(str(sorted((k, str(v)) for k, v in one.items())) for one in dataset.as_numpy_iterator())

        both = {split: (read(split, True), read(split, False)) for split in found.splits}
        return {split: [sum(a.values()), list((a - b) + (b - a))] for split, (a, b) in both.items()}

    def texts(self, module: str, task: str, folder: str) -> list[str]:
        """Returns the targets of a task's cached training examples as text, in alphabetical order."""
        import seqio

        importlib.import_module(module)
        seqio.add_global_cache_dirs([folder])
        dataset = seqio.TaskRegistry.get(task).get_dataset(None, "train", use_cached=True, shuffle=False)
        return sorted(one["targets_pretokenized"].decode() for one in dataset.as_numpy_iterator())
