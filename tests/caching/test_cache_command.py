"""``t5x-harness cache``: SeqIO reads what it wrote, even after interruptions and with other processes writing."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cache_tasks import TASKS

from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import RunProcess

Start = Callable[..., RunProcess]


def compared(start: Start, module: str, task: str) -> dict[str, Any]:
    with start() as process:
        found: dict[str, Any] = process.call("compare", module=module, task=task, folder="cache", timeout=120)
    return found


@pytest.mark.journey
def test_seqio_reads_from_the_cache_what_the_task_gives_without_it(cache: Any, start: Start, folder: Path) -> None:
    status, out, err = cache("sample_translate", module="t5x_harness.sample_tasks.tasks")
    assert (status, err) == (0, "")
    assert out == (
        f"task              split       examples  files  {'tokens':47}  parts resumed\n"
        "sample_translate  train          1,221      5  inputs 24,490 (most 28), targets 7,967 (most 8)  -\n"
        "sample_translate  validation        65      5  inputs 1,390 (most 25), targets 300 (most 5)     -\n"
        "sample_translate: cached in cache/sample_translate\n"
    )
    assert compared(start, "t5x_harness.sample_tasks.tasks", "sample_translate") == {
        "train": [1221, []],
        "validation": [65, []],
    }
    left = {path.name.partition(".tfrecord")[0] for path in (folder / "cache/sample_translate").iterdir()}
    files = {f"{kind}.{split}.json" for kind in ("info", "stats") for split in ("train", "validation")}
    assert left == {"COMPLETED", "train", "validation", *files}


def test_files_and_random_choices_are_those_of_seqios_own_program(cache: Any, start: Start, folder: Path) -> None:
    """The text is one that ``seqio_cache_tasks`` of SeqIO 0.0.20, which seeds each file, made from the same task."""
    assert cache("noisy_lines")[0] == 0
    with start() as process:
        texts = process.call("texts", module="mine", task="noisy_lines", folder="cache", timeout=120)
    assert {"the line 0 2 says 1802"} <= set(texts)
    assert len(texts) == 63
    train = json.loads((folder / "cache/noisy_lines/info.train.json").read_text())
    assert train["num_shards"] == 5
    assert train["features"]["w"] == {"dtype": "float32", "shape": [None, 1]}
    assert train["features"]["inputs_pretokenized"] == {"dtype": "string", "shape": []}
    stats = json.loads((folder / "cache/noisy_lines/stats.validation.json").read_text())
    assert (stats["examples"], stats["inputs_max_tokens"]) == (20, 21)


def test_what_is_cached_is_left_as_it_is_until_it_is_to_be_written_anew(cache: Any, folder: Path) -> None:
    assert cache("noisy_lines")[0] == 0
    before = (folder / "cache/noisy_lines/COMPLETED").stat().st_mtime_ns
    status, out, _ = cache("noisy_lines")
    assert (status, out) == (0, "noisy_lines: it is cached in cache/noisy_lines; --overwrite writes it anew\n")
    assert (folder / "cache/noisy_lines/COMPLETED").stat().st_mtime_ns == before
    (folder / "lines-0.txt").write_text("the only line\n")
    assert cache("noisy_lines", "--overwrite", "--min_shards=2", "--max_shards=2")[0] == 0
    names = sorted(path.name for path in (folder / "cache/noisy_lines").glob("train.tfrecord*"))
    assert names == ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"]
    assert json.loads((folder / "cache/noisy_lines/stats.validation.json").read_text())["examples"] == 1
    status, out, _ = cache("noisy_lines", "--tasks_additional_cache_dirs=cache", "--output_cache_dir=other")
    assert (status, out) == (0, "noisy_lines: it is cached in cache/noisy_lines\n")


@pytest.mark.journey
@pytest.mark.parametrize(("targets", "resumed"), [("line", "2"), ('"x"', "-")])
def test_a_killed_run_is_gone_on_with_unless_the_code_has_changed(
    cache: Any, start: Start, folder: Path, targets: str, resumed: str
) -> None:
    """Before that, its folder does not count as a cache."""
    (folder / "die").touch()
    with pytest.raises(RunDied):
        cache("dies")
    assert not (folder / "cache/dies/COMPLETED").exists()
    (folder / "die").unlink()
    (folder / "mine.py").write_text(TASKS.replace('"targets": line})', f'"targets": {targets}}})'))
    status, out, _ = cache("dies")
    assert status == 0
    assert [line.split()[-1] for line in out.splitlines() if " train " in line] == [resumed]
    assert compared(start, "mine", "dies") == {"train": [63, []], "validation": [20, []]}
    assert not (folder / "cache/dies/.parts").exists()


@pytest.mark.parametrize("address", ["cache", "gs://my-bucket/cache"])
def test_of_two_at_once_the_second_is_refused(
    cache: Any, folder: Path, address: str, request: pytest.FixtureRequest
) -> None:
    env = request.getfixturevalue("google") if "://" in address else {}
    first = threading.Thread(target=lambda: results.append(cache("waits", to, "--no-check", env=env)))
    results: list[tuple[int, str, str]] = []
    to = f"--output_cache_dir={address}"
    first.start()
    while not (folder / "waiting").exists():
        time.sleep(0.01)
    status, _, err = cache("waits", to, env=env)
    (folder / "go").touch()
    first.join()
    assert status == 1
    assert re.fullmatch(
        rf"t5x-harness: another process is caching into {address}/waits: process \d+ on "
        rf"{re.escape(socket.gethostname())}, last seen \S+\. Wait for it\n",
        err,
    )
    assert [result[0] for result in results] == [0]


def test_a_folder_that_cannot_be_made_is_named(cache: Any, folder: Path) -> None:
    (folder / "cache").touch()
    assert cache("waits")[2] == "t5x-harness: cache/waits cannot be written: Not a directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosy_lines",), "t5x-harness: no task is called nosy_lines; did you mean noisy_lines?\n"),
        (("both",), "t5x-harness: no task is called both, but a mixture: cache its tasks, --tasks=noisy_lines,waits\n"),
        (("a(",), "t5x-harness: 'a(' is not a regular expression: missing ), unterminated subpattern at position 1\n"),
        (
            ("without_place",),
            "t5x-harness: task without_place cannot be cached: its preprocessors have no "
            "seqio.CacheDatasetPlaceholder(): put one after tokenize, before what cuts or appends (plain, tokenize, "
            "append_eos)\n",
        ),
        (
            ("of_doubles",),
            "t5x-harness: of_doubles train: SeqIO does not read out of the cache what was written (63 examples with "
            "inputs_pretokenized string, inputs int32, targets_pretokenized string, targets int32, weight float64): a "
            "cache holds integers, float32 and text, of which only the first size may vary; give the features such "
            "types before the placeholder\n",
        ),
    ],
)
def test_what_cannot_be_cached_says_why(cache: Any, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = cache(*arguments)
    assert (status, out, err) == (1, "", message)
    assert not list(folder.glob("cache/*/COMPLETED"))


def test_random_examples_are_shown_and_written_all_the_same_where_that_is_meant(cache: Any, folder: Path) -> None:
    status, _, err = cache("guesses")
    assert status == 1
    first, _, fix = err.partition(". Take random choices")
    assert first.startswith(
        "t5x-harness: guesses train: preprocessed twice, shard 0 of the source gives other examples: of example 0, "
        "feature targets is int32 ["
    )
    assert fix.endswith("--no-check writes the cache as it comes\n")
    assert not (folder / "cache/guesses/COMPLETED").exists()
    assert cache("guesses", "--no-check")[0] == 0


def test_an_error_in_the_users_code_is_shown_at_its_line(cache: Any) -> None:
    status, _, err = cache("breaks")
    assert status == 1
    assert err.startswith("t5x-harness: mine.py:")
    assert "Traceback" not in err


@pytest.mark.usefixtures("folder")
def test_data_that_is_not_here_is_not_downloaded_and_can_be_generated_to_try(cache: Any) -> None:
    status, _, err = cache("sample_c4", module="t5x_harness.sample_tasks.c4")
    assert status == 1
    assert err.startswith("t5x-harness: task sample_c4 reads c4/en:3.1.0, which is not prepared (")
    assert err.endswith("--tfds_data_dir, or try the way with --standins=missing\n")
    status, out, _ = cache("sample_c4", "--standins=missing", module="t5x_harness.sample_tasks.c4")
    assert status == 0
    assert out.endswith(
        "stand-ins, so this cache is of no use for training:\n"
        "  TFDS data of task sample_c4: c4/en:3.1.0\n"
        "  vocabulary: 'gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model'\n"
    )
    again = cache("sample_c4", module="t5x_harness.sample_tasks.c4")
    assert again[1] == (
        "sample_c4: it is cached in cache/sample_c4 with generated examples; --overwrite writes it anew\n"
    )


CACHE = "--output_cache_dir=gs://my-bucket/cache"


@pytest.mark.journey
def test_a_killed_writer_is_followed_and_one_elsewhere_is_waited_for(
    cache: Any, folder: Path, google: Mapping[str, str]
) -> None:
    place = Path(google[ROOT_VARIABLE]) / "buckets/my-bucket/cache/dies"
    (folder / "die").touch()
    with pytest.raises(RunDied):
        cache("dies", CACHE, env=google)
    writer = json.loads((place / ".writer.json").read_text())
    (folder / "die").unlink()

    (place / ".writer.json").write_text(json.dumps({**writer, "host": "elsewhere"}))
    status, _, err = cache("dies", CACHE, env=google)
    assert (status, err) == (
        1,
        f"t5x-harness: another process is caching into gs://my-bucket/cache/dies: process "
        f"{writer['pid']} on elsewhere, last seen {writer['seen']}. Wait for it\n",
    )
    (place / ".writer.json").write_text(json.dumps(writer))
    status, out, err = cache("dies", CACHE, env=google)
    assert (status, err) == (0, "")
    assert [line.split()[-1] for line in out.splitlines() if " train " in line] == ["2"]
    left = {path.name.partition(".tfrecord")[0] for path in place.iterdir()}
    files = {f"{kind}.{split}.json" for kind in ("info", "stats") for split in ("train", "validation")}
    assert left == {"COMPLETED", "train", "validation", *files}
