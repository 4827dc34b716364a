"""Stand-ins that commands under ``exec --standins=missing`` make for themselves."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from t5x_harness.buckets.emulated import store
from t5x_harness.variables import ROOT_VARIABLE, SOURCE_VARIABLE, STANDINS_VARIABLE

COMMAND = (sys.executable, "-c", "import sys; from t5x_harness.commands.main import main; sys.exit(main())", "exec")
STATES = Path(__file__).parents[1] / "embedded"

PROGRAM = """
import types
import datasets
import numpy as np
import seqio
from small_states import partitioner, shapes, state
from t5x import utils

vocabulary = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_en.32000/sentencepiece.model", 100)
source = seqio.TfdsDataSource("wmt_t2t_translate/de-en:1.0.0", splits={"train": "train[:8]"})
texts = [each["de"] for each in source.get_dataset("train", shuffle=False).as_numpy_iterator()]
[row] = datasets.load_dataset("allenai/none", "en", split="train")

def restore(path):
    initializer = types.SimpleNamespace(global_train_state_shape=shapes(state()))
    config = utils.RestoreCheckpointConfig(path=path, mode="specific")
    return utils.create_checkpoint_manager_and_restore(
        initializer, partitioner(), config, path, None, model_dir="gs://mine/run", use_orbax=True
    )[0]

for path in ("gs://t5-data/pretrained_models/t5x/x/checkpoint_900", "gs://theirs/model/checkpoint_7"):
    restored = restore(path)
    print(int(restored.step), float(np.abs(restored.params["enc"]["kernel"]).sum()))
print(vocabulary.vocab_size, len(texts), texts[0].decode(), source.num_input_examples("train"), row["text"])
mine = seqio.TfdsDataSource(splits={"train": seqio.TfdsSplit("imdb_reviews:1.0.0", "train", "gs://mine/tfds")})
for fails in (
    lambda: seqio.SentencePieceVocabulary("gs://mine/none.model").vocab_size,
    lambda: restore("gs://mine/run/checkpoint_3"),
    lambda: mine.get_dataset("train", shuffle=False),
):
    try:
        fails()
    except Exception as error:
        print("fails")
"""


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(STATES), **variables}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.journey
def test_two_processes_get_the_same_stand_ins_each_made_once(tmp_path: Path) -> None:
    (tmp_path / "root" / "buckets" / "mine").mkdir(parents=True)
    rows = '[tool.t5x_harness.samples]\n"hf:allenai/none:en" = [{ text = "a row" }]\n'
    (tmp_path / "pyproject.toml").write_text(rows)
    (tmp_path / "program.py").write_text(PROGRAM)
    python = f"'{sys.executable}' program.py"
    both = f"{python} > other.txt & {python}; status=$?; wait $! && exit $status"
    options = ("--google-root=root", "--standins=missing", "--slice=v3:1x1", "--t5x-runtime=embedded")
    done = run(*options, "--", "sh", "-c", both, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == (tmp_path / "other.txt").read_text()
    published, other, read, *ends = done.stdout.splitlines()
    assert published.startswith("900 ")
    assert other.startswith("7 ")
    assert read.startswith("32100 8 ")
    assert read.endswith(" 8 a row")
    assert ends == ["fails"] * 3  # nothing is generated in one of the user's buckets
    of_mine = (
        ": the bucket mine is there, so what it lacks is missing. Put it there, or leave the bucket to "
        "--create-buckets: what a bucket lacks that is made when it is first used is generated"
    )
    lines = [line.partition("stand-in: ")[2] for line in done.stderr.splitlines() if "t5x-harness: stand-in: " in line]
    assert sorted(set(lines)) == [
        "TFDS data wmt_t2t_translate/de-en:1.0.0: examples generated from its features",
        "checkpoint gs://t5-data/pretrained_models/t5x/x/checkpoint_900: generated in the model's shapes, at step 900",
        "checkpoint gs://theirs/model/checkpoint_7: generated in the model's shapes, at step 7",
        "load_dataset allenai/none:en: 1 declared rows",
        f"none for TFDS data imdb_reviews:1.0.0 in gs://mine/tfds{of_mine}",
        f"none for checkpoint gs://mine/run/checkpoint_3{of_mine}",
        f"none for vocabulary gs://mine/none.model{of_mine}",
        "vocabulary gs://t5-data/vocabs/cc_en.32000/sentencepiece.model: 32,000 generated pieces",
    ]
    # Each process generates what is not in a bucket.
    assert [lines.count(line) for line in sorted(set(lines))] == [2, 1, 1, 2, 2, 2, 2, 1]
    assert not list((tmp_path / "root" / ".t5x-harness" / "standins").glob("process-*"))


def test_children_with_variables_of_their_own_make_stand_ins_unless_exec_s_are_gone(tmp_path: Path) -> None:
    program = """
    import os, subprocess, sys
    say = [sys.executable, "-c", "import sys; print('t5x_harness.execute.program_setup' in sys.modules)"]
    subprocess.run(say, check=True)
    subprocess.run(say, env={**os.environ, "PYTHONPATH": "mine"}, check=True)
    subprocess.run(say, env={"PATH": os.environ["PATH"]}, check=True)
    """
    (tmp_path / "launcher.py").write_text(textwrap.dedent(program))
    done = run("--google", "--standins=missing", "--slice=none", "--", sys.executable, "launcher.py", cwd=tmp_path)
    assert done.stdout.split() == ["True", "True", "False"], done.stderr


def test_without_buckets_the_command_is_not_started(tmp_path: Path) -> None:
    done = run("--standins=missing", "--", "true", cwd=tmp_path, **{ROOT_VARIABLE: ""})
    assert done.returncode == 2
    assert done.stderr == (
        "t5x-harness exec: --standins=missing: there are no buckets to put stand-ins in; add --google or --google-root "
        "DIR, or read the lines of t5x-harness serve into this shell\n"
    )


def test_a_mistake_in_the_projects_rows_is_reported_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.t5x_harness.samples]\n"hf:imdb" = "none.jsonl"\n')
    done = run("--google", "--standins=missing", "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "pyproject.toml:2" in done.stderr
    assert "none.jsonl" in done.stderr


@pytest.mark.parametrize(
    ("variables", "declared"),
    [
        ({STANDINS_VARIABLE: "/project"}, {"mine": True, "theirs": False, "none": False}),
        ({STANDINS_VARIABLE: ""}, {"mine": False, "theirs": False, "none": False}),
        ({STANDINS_VARIABLE: "/project", SOURCE_VARIABLE: "/none"}, {"mine": False, "theirs": False, "none": False}),
    ],
)
def test_a_bucket_with_stand_ins_alone_is_not_the_users(
    variables: Mapping[str, str], declared: Mapping[str, bool], tmp_path: Path
) -> None:
    here = store({ROOT_VARIABLE: str(tmp_path), **variables})
    (tmp_path / "buckets" / "mine").mkdir(parents=True)
    here.claim("gs://mine/x")
    here.claim("gs://theirs/x")
    (tmp_path / "buckets" / "theirs").mkdir()
    assert {name: here.is_declared(f"gs://{name}/y") for name in declared} == declared


@pytest.mark.parametrize(("end", "times"), [("raise ValueError('not a checkpoint')", 2), ("", 1)])
def test_why_there_is_none_stands_below_the_traceback_too(end: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "buckets" / "mine").mkdir(parents=True)
    program = (
        "from t5x_harness.execute import program_setup as p; from t5x_harness.buckets.emulated import store; "
        f"here = store(); p._ProcessStandIns(here, here.standins, '.')._explain('checkpoint x', 'gs://mine/x'); {end}"
    )
    environment = {**os.environ, ROOT_VARIABLE: str(tmp_path), STANDINS_VARIABLE: "."}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    said = "t5x-harness: stand-in: none for checkpoint x: the bucket mine is there, so what it lacks is missing. Put it"
    lines = done.stderr.splitlines()
    assert sum(line.startswith(said) for line in lines) == times
    assert lines[-1].startswith(said)
