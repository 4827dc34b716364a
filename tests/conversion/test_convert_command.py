"""``t5x-harness convert``, run as a user types it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import STEP, write

from t5x_harness.commands.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["convert", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_it_reports_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    status, out, _ = run(capsys, checkpoint, "--to", "transformers", "--output", tmp_path / "hf")
    assert status == 0
    assert out.splitlines() == [
        f"{checkpoint} (T5X's older layout) -> {tmp_path}/hf (transformers)",
        "  model: t5: 3 + 2 layers, width 16, 3 heads of 4, feed-forward 24 gated, 300 ids, logits of their own",
        "  arrays: 61, 84,608 bytes of float32",
        f"  step: {STEP}",
        "  files: model.safetensors, config.json, generation_config.json",
        "  taken for granted: mlp_activations = ('gelu', 'linear'), as in T5 1.1",
        "  left out: 1 other array, such as the optimizer's state",
        "  left out: the tokenizer: no config names a vocabulary; give it with --vocabulary=PATH or --vocabulary=bytes",
    ]


def test_it_reports_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run", "t5_1_1")
    status, out, _ = run(
        capsys, tmp_path / "run", "--to", "safetensors", "--output", tmp_path / "a", "--format", "json"
    )
    assert status == 0
    made = json.loads(out)
    assert (made["to"], made["step"], made["files"]) == ("safetensors", STEP, ["model.safetensors"])


def test_what_cannot_be_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, tmp_path / "no", "--to", "t5x", "--output", tmp_path / "a")
    assert (status, out, err) == (1, "", f"t5x-harness: there is no {tmp_path}/no\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to", "t5x", "--check"], "--check is for --to transformers, not for --to t5x: leave it out"),
        (["--to", "safetensors", "--step", "5"], "--step is for --to t5x, not for --to safetensors: leave it out"),
        (["--to", "t5x", "--step", "-5"], "'-5' is not a step: give a whole number, such as 1000000"),
        (["--to", "t5x", "--shard-size", "5 PB"], "'5 PB' is not a size: give bytes, or a number with KB, MB or GB"),
        ([], "the following arguments are required: --to"),
    ],
)
def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    status, _, err = run(capsys, "x", "--output", tmp_path / "a", *arguments)
    assert status == 2
    assert expected in err
    assert not (tmp_path / "a").exists()


def test_a_comparison_without_its_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from t5x_harness.conversion import checking

    monkeypatch.setattr(checking, "find_spec", lambda name: None if name == "torch" else object())
    checkpoint = write(tmp_path / "run", "t5_1_1")
    status, _, err = run(capsys, checkpoint, "--to", "transformers", "--output", tmp_path / "hf", "--check")
    assert (status, err) == (
        1,
        "t5x-harness: --check needs torch, not installed here: python -m pip install 't5x-harness[t5x,convert]', or "
        "convert without it\n",
    )
    assert not (tmp_path / "hf").exists()


def test_its_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from t5x_harness.commands.main import main; main(['convert', '--help']);"
        "print([m for m in ('jax', 'numpy', 'tensorflow', 'torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "--check" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


STOPPED = """
import os, signal, sys
from t5x_harness.commands.main import main
from t5x_harness.conversion import safetensors_files

write, written = safetensors_files.ShardedWriter.write, []
def write_some(self, name, array):
    write(self, name, array)
    written.append(name)
    if len(written) == 20:
        os.kill(os.getpid(), {how})
safetensors_files.ShardedWriter.write = write_some
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_stopped_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str) -> None:
    checkpoint = write(tmp_path / "run", "t5_1_1")
    arguments = ["convert", str(checkpoint), "--to", "transformers", "--output", str(tmp_path / "hf")]
    program = STOPPED.format(how=f"signal.{how}")
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == (130 if how == "SIGINT" else -signal.SIGKILL)
    assert not (tmp_path / "hf").exists()
    assert main(arguments) == 0
    assert sorted(os.listdir(tmp_path)) == ["hf", "run"]
    assert "Traceback" not in done.stderr
    capsys.readouterr()
