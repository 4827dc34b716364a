"""The rules know the names in the recorded T5X and in the libraries that the harness requires."""

import importlib.metadata
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from linting import RUN, T5X, Folder
from make_snapshot import main, snapshot_text

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.snapshot import LIBRARIES, Snapshot, canonical

API = Path(__file__).parents[1] / "reference" / "api.json"


def test_the_snapshot_is_up_to_date_and_small() -> None:
    shipped = resources.files("t5x_harness.gin").joinpath("t5x_api.json").read_text(encoding="utf-8")
    assert shipped == snapshot_text(json.loads(API.read_text(encoding="utf-8"))), (
        "run: python tests/lint/make_snapshot.py tests/reference/api.json"
    )
    assert len(shipped) < 60_000


def test_it_knows_functions_classes_and_methods() -> None:
    snapshot = Snapshot(T5X, ModuleFinder([], None))
    train = snapshot.find("__main__.train")
    assert train is not None
    assert {"model", "total_steps"} <= set(train.required)
    assert snapshot.find("t5x.utils.SaveCheckpointConfig").parameters[:2] == ("dtype", "period")  # type: ignore[union-attr,index]
    method = snapshot.find("t5x.models.EncoderDecoderModel.predict_batch_with_aux")
    assert method is not None
    assert method.parameters is not None
    assert "num_decodes" in method.parameters
    assert snapshot.find("t5x.utils.Nothing") is None
    assert snapshot.module_of("clu.metrics.Average") is None
    assert snapshot.suffixes("utils.DatasetConfig") == ("t5x.utils.DatasetConfig",)


@pytest.mark.stack
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_snapshot_of_a_library_is_that_of_the_version_that_the_harness_asks_for(library: str) -> None:
    shipped = resources.files("t5x_harness.gin").joinpath(f"{library}_api.json").read_text(encoding="utf-8")
    assert len(shipped) < 60_000
    try:
        version = importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    assert json.loads(shipped)["version"] == version, f"run: python tests/lint/make_snapshot.py {library}"
    program = f"import sys; from make_snapshot import interface_text; sys.stdout.write(interface_text({library!r}))"
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert shipped == made.stdout, f"run: python tests/lint/make_snapshot.py {library}"


def test_it_knows_the_libraries_by_each_of_their_names() -> None:
    snapshot = Snapshot(T5X, ModuleFinder([], None))
    evaluator = snapshot.find("seqio.evaluation.Evaluator")
    assert evaluator is not None
    assert evaluator == snapshot.find("seqio.Evaluator")
    assert evaluator.parameters is not None
    assert "logger_cls" in evaluator.parameters
    assert canonical("seqio.evaluation.Evaluator.evaluate") == "seqio.Evaluator.evaluate"
    assert snapshot.find("seqio.evaluation.Evaluator.evaluate") is not None
    assert snapshot.find("optax.adamw").parameters[:2] == ("learning_rate", "b1")  # type: ignore[union-attr,index]
    assert snapshot.find("seqio.Evalator") is None
    assert not snapshot.mentions("seqio", "Evalator")
    assert snapshot.mentions("seqio", "vocabularies")


_SEQIO = RUN + "import seqio\nseqio.Evaluator.loger_cls = None\nseqio.JSONLoger.output_dir = 'x'\n"


def test_misspelt_names_of_a_library_are_found(folder: Folder) -> None:
    found = [(f.code, f.message) for f in folder.findings(_SEQIO)]
    assert [each for each in found if each[0] != "GIN38"] == [
        ("GIN13", "seqio.Evaluator has no parameter loger_cls; did you mean logger_cls?"),
        ("GIN14", "seqio has no JSONLoger; did you mean JSONLogger?"),
    ]


@pytest.mark.parametrize(
    ("beside", "here"), [(["seqio-0.0.21.dist-info"], "0.0.21"), ([], "another"), (["seqio-1.dist-info"] * 2, "1")]
)
def test_another_version_of_a_library_is_not_judged(folder: Folder, beside: list[str], here: str) -> None:
    for name in ("seqio", *beside):
        (folder.path / "src" / name).mkdir(parents=True, exist_ok=True)
    (folder.path / "src" / "seqio" / "__init__.py").touch()
    result = folder.lint(_SEQIO, python_path=("src",))
    assert result.findings == ()
    assert result.not_checked == (
        "names and parameters of seqio.SentencePieceVocabulary, seqio.Evaluator, seqio.JSONLoger: the record is of "
        f"seqio 0.0.20, here is {here}",
    )


def test_a_library_that_is_not_here_is_taken_as_recorded(tmp_path: Path) -> None:
    class Nothing(ModuleFinder):
        def find(self, _name: str, /) -> None:
            return None

    assert Snapshot(T5X, Nothing([tmp_path], None)).doubt("seqio.Evaluator") is None


@pytest.mark.parametrize("arguments", [[], ["numpy"], ["seqio", "api"]])
def test_the_script_wants_a_record_or_a_library(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: python tests/lint/make_snapshot.py API_JSON | seqio | optax ..." in capsys.readouterr().err
