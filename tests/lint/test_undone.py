"""Values that a later statement undoes, in one file or across includes or files, and macros that nothing reads."""

import dataclasses

import pytest
from linting import FINETUNE, PRETRAIN, RUN, TINY, Folder, lint

from t5x_harness.spec import Finding, Location, RunSpec, Severity

SIZES = "BATCH_SIZE = 64\n"


def undone(folder: Folder, *gin_files: str) -> list[Finding]:
    found = lint(RunSpec(gin_files, cwd=str(folder.path))).findings
    return [f for f in found if f.code in ("GIN04", "GIN34")]


def test_the_same_binding_twice_in_one_file(folder: Folder) -> None:
    folder.write({"run.gin": RUN + "BATCH_SIZE = 64\ntrain/utils.DatasetConfig.seed = 1\nBATCH_SIZE = 128\n"})
    (finding,) = undone(folder, "run.gin")
    assert (finding.code, finding.severity, finding.location) == ("GIN34", Severity.WARNING, Location("run.gin", 10))
    assert finding.message == "BATCH_SIZE = 64 is bound again in line 12, to 128"
    folder.write({"run.gin": RUN + "BATCH_SIZE = 64\nBATCH_SIZE = 64\n"})
    (finding,) = undone(folder, "run.gin")
    assert (finding.severity, finding.message) == (
        Severity.NOTE,
        "BATCH_SIZE = 64 is bound again in line 11, to the same",
    )


def test_the_same_macro_in_two_sibling_includes_is_noted(folder: Folder) -> None:
    folder.write({"a.gin": SIZES, "b.gin": "BATCH_SIZE = 256\n"})
    folder.write({"run.gin": RUN + "include 'a.gin'\ninclude 'b.gin'\n"})
    (finding,) = undone(folder, "run.gin")
    assert (finding.code, finding.severity) == ("GIN04", Severity.NOTE)
    assert finding.location == Location("a.gin", 1, (Location("run.gin", 10),))
    assert finding.message == (
        "BATCH_SIZE = 64 is lost: b.gin, which run.gin:11 includes after a.gin, sets it to 256 (b.gin:1)"
    )
    assert finding.fix == "bind BATCH_SIZE in one of the two, or below line 11 of run.gin"


def test_a_default_of_t5x_undoes_the_value_of_an_include_above_it(folder: Folder) -> None:
    folder.write({"sizes.gin": SIZES, "ours.gin": f"include '{PRETRAIN}'\n"})
    for include in (PRETRAIN, "ours.gin"):
        folder.write({"run.gin": RUN.replace(f"include '{PRETRAIN}'", f"include 'sizes.gin'\ninclude '{include}'")})
        (finding,) = undone(folder, "run.gin")
        assert finding.severity is Severity.WARNING
        assert finding.location == Location("sizes.gin", 1, (Location("run.gin", 5),))
        assert "which run.gin:6 includes after sizes.gin, sets it to 128" in finding.message


@pytest.mark.parametrize(
    "given", [("sizes.gin", "run.gin"), ("sizes.gin", TINY, "ours.gin"), ("sizes.gin", TINY, PRETRAIN)]
)
def test_a_value_given_before_the_run_that_sets_it(folder: Folder, given: tuple[str, ...]) -> None:
    folder.write({"sizes.gin": SIZES, "run.gin": RUN + "BATCH_SIZE = 8\n", "ours.gin": f"include '{FINETUNE}'\n"})
    (finding,) = undone(folder, *given)
    assert (finding.severity, finding.location) == (Severity.WARNING, Location("sizes.gin", 1))
    assert "which is given after sizes.gin, sets it to" in finding.message
    assert finding.fix is not None
    assert finding.fix.startswith("give sizes.gin after ")


def test_what_overrides_by_its_place_is_left_alone(folder: Folder) -> None:
    folder.write(
        {"base.gin": RUN + SIZES, "variant.gin": "BATCH_SIZE = 8\n", "run.gin": "include 'base.gin'\nBATCH_SIZE = 2\n"}
    )
    assert undone(folder, "base.gin", "variant.gin") == []
    assert undone(folder, "run.gin") == []
    assert undone(folder, TINY, "run.gin", "variant.gin") == []
    # The parameters of one object, in layers that are separate includes.
    scoped = "from __gin__ import dynamic_registration\nfrom t5x import utils\nutils.SaveCheckpointConfig.keep = {}\n"
    folder.write({"one.gin": scoped.format(1), "two.gin": scoped.format(2)})
    folder.write({"run.gin": RUN + "include 'one.gin'\ninclude 'two.gin'\n"})
    assert undone(folder, "run.gin") == []


SHARED = "from __gin__ import dynamic_registration\nfrom t5x.examples.t5 import network\n"


@pytest.mark.parametrize("together", [False, True])
def test_a_file_that_is_included_again_sets_back_what_was_bound_between(folder: Folder, together: bool) -> None:
    folder.write(
        {
            "shared.gin": f"{SHARED}network.T5Config.mlp_dim = 32\n",
            "first.gin": f"{SHARED}include 'shared.gin'\nnetwork.T5Config.mlp_dim = 64\n",
            "second.gin": "include 'shared.gin'\nBATCH_SIZE = 8\n",
        }
    )
    lines = "include 'first.gin'\ninclude 'second.gin'\n" if together else "include 'first.gin'\n"
    spec = folder.spec(RUN.replace("MIXTURE_OR", f"{lines}MIXTURE_OR", 1))
    files = ("run.gin",) if together else ("run.gin", "second.gin")
    found = lint(dataclasses.replace(spec, gin_files=files)).findings
    (finding,) = [f for f in found if f.code == "GIN04"]
    assert (finding.severity, finding.location.file, finding.location.line) == (Severity.WARNING, "first.gin", 4)  # type: ignore[union-attr]
    which = (
        "second.gin, which run.gin:7 includes after first.gin,"
        if together
        else ("second.gin, which is given after run.gin and includes shared.gin again,")
    )
    assert finding.message == f"network.T5Config.mlp_dim = 64 is lost: {which} sets it to 32 (shared.gin:3)"
    first = "include first.gin after second.gin" if together else "give run.gin after second.gin"
    assert finding.fix == f"{first}, or do not include shared.gin again"


REPLACED = (
    RUN.replace("from t5x import utils\n", "from t5x import utils\nimport words\n")
    + "train/utils.DatasetConfig.mixture_or_task_name = @words.capitals()\n"
    + "train_eval/utils.DatasetConfig.mixture_or_task_name = @words.capitals()\n"
)


def test_a_macro_whose_reader_is_bound_anew_is_not_misspelt(folder: Folder) -> None:
    folder.write({"words.py": "def capitals(): return 'my_task'\n"})
    (finding,) = folder.findings(REPLACED, python_path=(str(folder.path),))
    assert (finding.code, finding.severity, finding.binding) == ("GIN02", Severity.NOTE, "MIXTURE_OR_TASK_NAME")
    assert finding.message == (
        "nothing reads the macro MIXTURE_OR_TASK_NAME = 'my_task': train/utils.DatasetConfig.mixture_or_task_name, "
        "which read it, is @words.capitals() (run.gin:11)"
    )
    assert finding.fix == (
        "keep it, because t5x/configs/runs/pretrain.gin declares it gin.REQUIRED, or use %MIXTURE_OR_TASK_NAME in "
        "train/utils.DatasetConfig.mixture_or_task_name"
    )
    assert finding.edits == ()
