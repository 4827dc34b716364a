"""The examples of docs/conversion.md run with a tiny model; its Python runs if transformers is installed."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import t5x_in_use
from page_blocks import blocks, parsed

from t5x_harness.commands.main import main
from t5x_harness.standins.vocabularies import VocabularySize, model_of

CONFIG = """
from __gin__ import dynamic_registration
from t5x.examples.t5 import network
network.T5Config.mlp_activations = ('gelu', 'linear')
"""


@pytest.fixture
def folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder with a run's checkpoint and a vocabulary."""
    t5x_in_use.use()
    monkeypatch.syspath_prepend(repository / "tests/conversion")
    from tiny_models import write

    write(tmp_path / "run", "t5_1_1")
    (tmp_path / "run/config.gin").write_text(CONFIG)
    pieces = model_of(VocabularySize(300))
    (tmp_path / "sentencepiece.model").write_bytes(pieces)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands_convert_and_report_as_shown(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (commands,), (console, in_bucket) = blocks(page, "shell"), blocks(page, "console")
    converted = parsed(shlex.join(parsed(in_bucket.removeprefix("$ ")).command[1:]))
    assert converted.output == "gs://my-bucket/hf"  # tests/conversion/test_buckets.py runs it
    for number, command in enumerate(commands.splitlines()):
        assert main(shlex.split(command)[1:]) == 0, command
        printed = capsys.readouterr().out.replace(f"{folder}/", "")
        if number == 0:
            shown_command, _, shown = console.partition("\n")
            assert shown_command == f"$ {command}"
            kept = [line for line in printed.splitlines() if not line.startswith("  note: ")]  # of this vocabulary
            assert kept == shown.splitlines()
    assert (folder / "restored/checkpoint_1000/state").is_dir()
    assert "tiny_models" in sys.modules


def test_its_message_is_that_of_the_command(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tiny_models import write

    def change(arrays: dict[str, Any]) -> None:
        arrays["decoder/layers_1/mlp/adapter/kernel"] = np.zeros((4, 4), np.float32)
        del arrays["decoder/layers_0/mlp/wi_1/kernel"]

    shutil.rmtree(folder / "run/checkpoint_1000")
    write(folder / "run", "t5_1_1", change=change)
    assert main(["convert", "run", "--to", "transformers", "--output", "hf"]) == 1
    (shown,) = blocks(page, "text")
    assert capsys.readouterr().err.replace(f"{folder}/", "") == shown
