"""A run's folder is its own: refused if it cannot be, removed if nothing was written into it."""

from pathlib import Path

import pytest

from t5x_harness.runs.model_dirs import ModelDirError, claim_model_dir, ensure_model_dirs
from t5x_harness.spec import RunSettings, RunSpec


def spec(cwd: Path, model_dir: str) -> RunSpec:
    return RunSpec(("run.gin",), cwd=str(cwd), settings=RunSettings(model_dir=model_dir))


def test_a_folder_is_made_and_kept_with_what_is_in_it(tmp_path: Path) -> None:
    with claim_model_dir(spec(tmp_path, "a/b")):
        (tmp_path / "a/b/config.gin").touch()
    assert (tmp_path / "a/b/config.gin").is_file()


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(KeyboardInterrupt), claim_model_dir(spec(tmp_path, "a/b/c")):
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_an_empty_folder_may_be_there_already_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    ensure_model_dirs([spec(tmp_path, "a")])
    with claim_model_dir(spec(tmp_path, "a")):
        pass
    assert (tmp_path / "a").is_dir()


def test_a_folder_that_holds_something_is_refused_before_and_after_the_start(tmp_path: Path) -> None:
    for name in ("checkpoint_4", "config.gin", "train", "x"):
        (tmp_path / "a" / name).mkdir(parents=True)
    message = r"--model_dir a: it already holds checkpoint_4, config.gin and 2 more; name a new folder for each run"
    with pytest.raises(ModelDirError, match=message):
        ensure_model_dirs([spec(tmp_path, "a")])
    with pytest.raises(ModelDirError, match=message), claim_model_dir(spec(tmp_path, "a")):
        pytest.fail("entered")


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    with claim_model_dir(spec(tmp_path, "a")):
        with (
            pytest.raises(ModelDirError, match=r"--model_dir \./x/\.\./a: another run is writing into it"),
            claim_model_dir(spec(tmp_path, "./x/../a")),
        ):
            pytest.fail("entered")
        assert (tmp_path / "a").is_dir()
        with claim_model_dir(spec(tmp_path, "b")):
            pass
    with claim_model_dir(spec(tmp_path, "a")):
        pass


def test_results_are_not_kept_in_a_bucket(tmp_path: Path) -> None:
    with pytest.raises(ModelDirError, match=r"--model_dir gs://bucket/run: .*name a local folder, and bind MODEL_DIR"):
        ensure_model_dirs([spec(tmp_path, "gs://bucket/run")])
