"""What a zygote of runs has done once is not done again in each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.execute.conversions import SEQIO_FUNCTIONS, convert, functions_of
from t5x_harness.spec import RunSpec
from t5x_harness.workers import Zygote
from t5x_harness.workers.run_process import COLLECTED_AFTER

HERE = Path(__file__).parent


def test_a_run_imports_no_rule_or_stage_and_converts_nothing_of_seqio(
    zygote: Zygote, train_text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.gin").write_text(train_text)
    paths = [str(HERE), str(HERE.parent / "reference")]
    spec = RunSpec(
        gin_files=("config.gin",), slice="v3:1x1", runtime="embedded", python_path=tuple(paths), cwd=str(tmp_path)
    )
    argument = {"spec": spec.to_json(), "workspace": str(tmp_path / "run")}
    log = tmp_path / "run.log"
    with zygote.start("preloaded_objects:Watched", argument, log=log, cwd=tmp_path, python_path=paths) as run:
        assert run.call("resolve_and_plan", timeout=300) == ["passed", "passed"]
        run.call("build_pipelines", timeout=300)
        settings = run.call("settings", timeout=60)
        assert settings["optimizer"]["disable_meta_optimizer"] is True
        assert settings["garbage"] == COLLECTED_AFTER
        assert run.call("new", timeout=60) == {"modules": [], "functions": []}


def test_every_listed_function_is_converted_once_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.autograph.impl import api

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in SEQIO_FUNCTIONS:
        assert convert([name]) >= 1, name
    held = len(api._TRANSPILER._cache)
    assert convert() >= len(SEQIO_FUNCTIONS)
    assert len(api._TRANSPILER._cache) == held
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("how", "of_the_child"), [("awaited", "all"), ("at once", "some"), ("killed", "none")])
def test_conversions_are_taken_over_from_the_process_beside_and_made_up_for(
    tmp_path: Path, how: str, of_the_child: str
) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(HERE / "converting_beside.py"), how]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    number = len(functions_of(SEQIO_FUNCTIONS))
    adopted = {"all": range(number, number + 1), "some": range(1, number + 1), "none": range(1)}[of_the_child]
    assert found.pop("foreign") in adopted
    assert found == {
        "converted": number,
        "again": number,
        "held": number,
        "padded": [0, 1, 2],
        "new": [],
        "children": False,
        "files": [],
    }


@pytest.mark.parametrize(
    "name",
    ["no_such_module:function", "seqio.utils:no_such_function", "seqio.utils:trim_dataset.<locals>.no_such_function"],
)
def test_what_this_seqio_lacks_is_passed_over(name: str) -> None:
    assert convert([name]) == 0
