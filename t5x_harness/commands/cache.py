"""``t5x-harness cache``: preprocesses SeqIO tasks once, into files that ``USE_CACHED_TASKS = True`` reads."""

import argparse
import contextlib
import dataclasses
import importlib
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.buckets.emulated import store
from t5x_harness.caching.request import CachedTask, CacheError, CacheRequest
from t5x_harness.commands.arguments import FINE, FOUND, UsageError, note, parts
from t5x_harness.findings.printable import printable
from t5x_harness.findings.text import columns
from t5x_harness.report.json import json_text
from t5x_harness.settings.forms import count, from_zero, whole
from t5x_harness.settings.project import load_project
from t5x_harness.slices.devices import use_cpu_only
from t5x_harness.spec import RunSettings, RunSpec, Stage, StandInPolicy

EPILOG = """\
examples:
  t5x-harness cache --module_import=my.tasks --tasks=my_task --output_cache_dir=cache
                                                  my_task in files below cache/my_task
  t5x-harness cache --module_import=my.tasks --tasks='my_.*' --excluded_tasks=my_large --output_cache_dir=gs://bucket/cache
  t5x-harness cache --module_import=t5x_harness.sample_tasks.tasks --tasks=sample_translate --output_cache_dir=cache \
      --min_shards=4

The options are those of seqio_cache_tasks, without Apache Beam: for what fits one machine. Runs read the cache
where a config has USE_CACHED_TASKS = True, and the module of the tasks says seqio.add_global_cache_dirs(['cache']).
A task that is cached is left as it is. After Ctrl-C or a crash the same command goes on with what is written; two
at once into one folder are refused.
exit status: 0 cached, 1 a task cannot be, or SeqIO would read something else, 2 wrong usage
"""

_SECONDS = 5.0
"""The time between two progress lines, in seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``cache`` to a parser: the arguments of ``seqio_cache_tasks`` and a few more."""
    parser.add_argument(
        "--output_cache_dir",
        dest="folder",
        type=_folder,
        required=True,
        metavar="DIR",
        help="folder of the cache, local or gs://; each task gets a folder of its name in it",
    )
    tasks = parser.add_argument_group("which tasks")
    tasks.add_argument(
        "--module_import",
        action="append",
        default=[],
        metavar="MODULE",
        help="module that registers tasks, found from here or from python_path of pyproject.toml; may be repeated",
    )
    tasks.add_argument(
        "--tasks",
        type=parts,
        default=(),
        metavar="REGEX[,REGEX]",
        help="names of tasks, as regular expressions of the whole name (default: all that are registered)",
    )
    tasks.add_argument(
        "--excluded_tasks",
        dest="excluded",
        type=parts,
        default=(),
        metavar="REGEX[,REGEX]",
        help="the same, of tasks to leave out",
    )
    tasks.add_argument(
        "--tasks_additional_cache_dirs",
        dest="other_folders",
        type=parts,
        default=(),
        metavar="DIR[,DIR]",
        help="further caches: what is cached there is not cached again",
    )
    tasks.add_argument("--ignore_other_caches", action="store_true", help="cache also what is cached in another folder")
    tasks.add_argument("--overwrite", action="store_true", help="write anew what is cached in --output_cache_dir")
    written = parser.add_argument_group("what is written")
    written.add_argument(
        "--min_shards",
        type=count,
        default=64,
        metavar="N",
        help="the least number of files of a split: at least one for each host that reads it (default: 64)",
    )
    written.add_argument(
        "--max_shards", type=from_zero, default=0, metavar="N", help="the largest number (default: one a source file)"
    )
    written.add_argument(
        "--base_seed", type=whole, metavar="N", help="seed of random preprocessors before the cache (default: SeqIO's)"
    )
    written.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read everything back through SeqIO's reader, preprocess it once more, and compare all three; without "
        "it the time is half (default: --check)",
    )
    data = parser.add_argument_group("where data comes from")
    data.add_argument("--tfds_data_dir", metavar="DIR", help="where TFDS data lies, for all tasks")
    data.add_argument(
        "--standins",
        choices=(StandInPolicy.OFF.value, StandInPolicy.MISSING.value),
        default=StandInPolicy.OFF.value,
        help="generate vocabularies and TFDS data that cannot be reached here (missing), to try the way: such a cache "
        "is of no use for training (default: off)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to report (default: text)")


def main(arguments: argparse.Namespace) -> int:
    """Caches tasks and reports the caches.

    Returns:
      The exit status: 0, or 1 if a task cannot be cached, or its cache would not hold the task's examples.

    Raises:
      UsageError: options contradict each other.
    """
    if arguments.max_shards and arguments.max_shards < arguments.min_shards != 64:
        raise UsageError(f"--max_shards {arguments.max_shards} is less than --min_shards {arguments.min_shards}")
    use_cpu_only()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with tempfile.TemporaryDirectory(prefix="t5x-harness-cache-") as folder, _quiet() as terminal:
            done, refused, standins = _cache(arguments, Path(folder), terminal)
    except CacheError as error:
        done, refused, standins = (), (str(error),), ()
    if done:
        _report(arguments.format, done, standins)
    for message in refused:
        note(message)
    return FOUND if refused else FINE


def _cache(
    arguments: argparse.Namespace, generated: Path, terminal: TextIO
) -> tuple[Sequence[CachedTask], Sequence[str], Sequence[str]]:
    """Caches the tasks.

    Returns:
      The result for each task, the reasons why some are not cached, and descriptions of the generated stand-ins.

    Raises:
      CacheError: there is nothing to cache, or one of the user's modules cannot be imported.
    """
    from t5x_harness.runtime.import_hooks import ensure_t5x

    project = load_project(Path.cwd())
    sys.path[:0] = [os.getcwd(), *project.python_path]
    ensure_t5x()
    import absl.logging
    import seqio

    from t5x_harness.caching import caching
    from t5x_harness.resolve.datasets import tfds_problem
    from t5x_harness.standins.run import StandIns

    absl.logging.set_verbosity("error")
    policy = StandInPolicy(arguments.standins)
    request = CacheRequest(**{each.name: getattr(arguments, each.name) for each in dataclasses.fields(CacheRequest)})
    if policy is not StandInPolicy.OFF and is_remote(request.folder) and store() is None:
        raise CacheError(
            f"--standins=missing would put generated examples into {request.folder}, where jobs read them: leave the "
            "option out, or name a local folder"
        )
    standins = StandIns(RunSpec((), settings=RunSettings(standins=policy, samples=project.samples)), generated, None)
    standins.install()
    if arguments.tfds_data_dir:
        seqio.set_tfds_data_dir_override(arguments.tfds_data_dir)
    for module in arguments.module_import:
        _guarded(lambda name=module: importlib.import_module(name))  # type: ignore[misc]
    seqio.add_global_cache_dirs([request.folder, *request.other_folders])

    generated_of: list[str] = []

    def prepare(task: seqio.Task) -> Sequence[str]:
        dataset: Any = types.SimpleNamespace(use_cached=False, batch_size=0, split="train")
        standins.take_places(dataset, (task,))
        # SeqIO would download TFDS data that has not been prepared, which takes days for C4.
        if (problem := tfds_problem(task, "train")) is not None:
            raise CacheError(
                f"task {task.name} reads {problem.name}, which is not prepared ({problem.detail}): prepare it with "
                "TFDS, give its folder with --tfds_data_dir, or try the way with --standins=missing"
            )
        for feature in task.output_features.values():  # opens the vocabulary's files
            feature.vocabulary.vocab_size  # noqa: B018
        made = [f"{change.binding}: {change.before}" for change in standins.take_changes()]
        generated_of.extend(made)
        return made

    done: list[CachedTask] = []
    refused: list[str] = []
    for task in caching.tasks_of(request):
        try:
            done.append(_guarded(lambda task=task: caching.cache(request, task, _CacheProgress(terminal), prepare)))  # type: ignore[misc]
        except CacheError as error:
            refused.append(str(error))
    asked = {one.name: one.left_out for one in done if one.folder is None and one.name in request.tasks}
    refused += [f"task {name} cannot be cached: {why}" for name, why in asked.items()]
    return [one for one in done if one.name not in asked], refused, generated_of


def _guarded(step: Callable[[], Any]) -> Any:
    """Runs a step that executes the user's code.

    Raises:
      CacheError: the step raised an exception, which the message explains with the user's line.
    """
    from t5x_harness.resolve.explanation import explain

    try:
        return step()
    except (CacheError, UsageError):
        raise
    except Exception as error:  # any exception of a user's module or preprocessor
        found = explain(error, Stage.RESOLVE, None)
        place = f"{found.location}: " if found.location else ""
        fix = f"; fix: {found.fix}" if found.fix and "run's log" not in found.fix else ""  # there is no such log here
        message = found.message.replace(f"{Stage.RESOLVE} stopped with", "caching stopped with")
        raise CacheError(f"{place}error {found.code}: {message}{fix}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[TextIO]:
    """Hides the output of libraries, unless an unexpected exception ends the block.

    Yields:
      The terminal's standard error.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as printed, os.fdopen(os.dup(2), "w") as terminal:
        os.dup2(printed.fileno(), 2)
        try:
            yield terminal
        except (CacheError, UsageError, KeyboardInterrupt):
            raise
        except BaseException:
            printed.seek(0)
            terminal.write(printed.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            terminal.flush()
            os.dup2(terminal.fileno(), 2)


class _CacheProgress:
    """Prints the progress to the terminal every few seconds."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._last = time.monotonic()

    def __call__(self, task: str, split: str, doing: str, examples: int) -> None:
        if time.monotonic() - self._last >= _SECONDS:
            self._last = time.monotonic()
            print(f"{task} {split}: {examples:,} examples {doing}", file=self._terminal, flush=True)


def _report(form: str, done: Sequence[CachedTask], standins: Sequence[str]) -> None:
    if form == "json":
        print(json_text({"tasks": [one.to_json() for one in done], "standins": list(standins)}))
        return
    rows = [
        (one.name, split.name, f"{split.stats['examples']:,}", split.shards, _tokens(split.stats), split.resumed or "-")
        for one in done
        for split in one.splits
    ]
    if rows:
        print(columns(rows, ("task", "split", "examples", "files", "tokens", "parts resumed")))
    for one in done:
        how = f"{'not cached: ' if one.folder is None else ''}{one.left_out or f'cached in {one.folder}'}"
        print(printable(f"{one.name}: {how}"))
    if standins:
        print("stand-ins, so this cache is of no use for training:", *printable(tuple(standins)), sep="\n  ")


def _tokens(stats: Mapping[str, int]) -> str:
    features = [name.removesuffix("_max_tokens") for name in sorted(stats) if name.endswith("_max_tokens")]
    return ", ".join(f"{name} {stats[f'{name}_tokens']:,} (most {stats[f'{name}_max_tokens']:,})" for name in features)


def _folder(text: str) -> str:
    # An empty text is refused where it is kept; it must not become the root folder.
    return text and (os.path.expanduser(text).rstrip("/") or "/")
