"""`t5x-harness fit` as it is typed: wrong usage has one clear message each, and starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.aot import libtpu
from t5x_harness.commands.main import main

CONFIG = "from __gin__ import dynamic_registration\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.gin", "--slices", "v3-9"], "--slices: 'v3-9' is not a TPU slice: nearest names: v3-8, v3-32, v3-64"),
        (["x.gin", "--generation", "v7"], "--generation v7: choose one of v2, v3, v4, v5e, v5p, v6e"),
        (["x.gin", "y.gin"], "fit takes one config, and these are 2: x, y"),
        (["missing.gin"], "there is no gin file missing.gin; searched: ."),
        ([], "nothing to run: name a gin file"),
        (["x.gin", "--programs", "trian"], "--programs trian: choose of train, train_eval, predict, score"),
        (["x.gin", "--remat", "most"], "--remat most: choose of none, minimal, full"),
        (["x.gin", "--microbatches", "0"], "must be a whole number from 1 up, not '0'"),
        (["x.gin", "--batch", "64,,128"], "'64,,128': give values with commas between them"),
        (["x.gin", "--slices", "v3-8", "--generation", "v3"], "not allowed with argument"),
        (["x.gin", "--aot=lower"], "invalid choice: 'lower'"),
        (["x.gin", "--hours", "0"], "must be a positive number, not '0'"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.gin", "y.gin"):
        Path(name).write_text(CONFIG)
    assert main(["fit", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_the_compiler_it_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.gin").write_text(CONFIG)
    monkeypatch.setattr(libtpu, "is_installed", lambda: False)
    assert main(["fit", "x.gin"]) == 2
    assert f"the TPU compiler is not installed: {libtpu.INSTALL}" in capsys.readouterr().err
