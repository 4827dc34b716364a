"""A file's classification as a run config, a fragment or broken gives its reason."""

import pytest
from linting import PRETRAIN, RUN, T5X, TINY, Folder, classify

from t5x_harness.gin.reading import program_of
from t5x_harness.lint.classify import FileKind
from t5x_harness.spec import Location, Mode


@pytest.mark.parametrize(
    ("gin", "kind", "reason"),
    [
        (RUN, FileKind.RUN_CONFIG, "run.gin binds train and leaves nothing open"),
        (
            f"include '{TINY}'\n",
            FileKind.FRAGMENT,
            "run.gin is not a run config: it binds none of train, evaluate and infer",
        ),
        (
            f"include '{TINY}'\ninclude '{PRETRAIN}'\nDROPOUT_RATE = 0.0\nTRAIN_STEPS = 1\n",
            FileKind.FRAGMENT,
            "run.gin is not a run config: it leaves MIXTURE_OR_TASK_NAME, TASK_FEATURE_LENGTHS to another file or the "
            "command line",
        ),
        (
            RUN.replace(f"include '{TINY}'\n", ""),
            FileKind.FRAGMENT,
            "run.gin is not a run config: it uses MODEL, which another file has to define",
        ),
        (
            "from __gin__ import dynamic_registration\nimport __main__ as t\nt.evaluate:\n  model = None\n"
            "  dataset_cfg = None\n  output_dir = None\n  restore_checkpoint_cfg = None\n",
            FileKind.FRAGMENT,
            "run.gin is not a run config: it does not bind evaluate.partitioner",
        ),
        (
            "from __gin__ import dynamic_registration\nimport __main__ as t\nt.precompile.model = None\n",
            FileKind.FRAGMENT,
            "run.gin is not a run config: it binds precompile, which is none of train, evaluate and infer",
        ),
        (RUN + "X = \n", FileKind.RUN_CONFIG, "run.gin binds train, but cannot be read to the end"),
        (
            "X = 1\nX = tiny\n",
            FileKind.BROKEN,
            "run.gin:2: syntax error: X = tiny (not a Python literal), so run.gin cannot be read to the end",
        ),
        (
            "include 'models/tiny.gin'\n",
            FileKind.BROKEN,
            "run.gin:1: no such gin file: models/tiny.gin, so run.gin cannot be read to the end",
        ),
        # A misspelled macro is a mistake in a run config, not a sign of a fragment.
        (RUN + "TRAIN_STEPS = %BATCHSIZE\n", FileKind.RUN_CONFIG, "run.gin binds train and leaves nothing open"),
    ],
)
def test_the_kind_and_its_reason(folder: Folder, gin: str, kind: FileKind, reason: str) -> None:
    found = classify(folder.spec(gin))
    assert (found.kind, found.reason) == (kind, reason)
    if kind is FileKind.RUN_CONFIG:
        assert found.mode is Mode.TRAIN


def test_the_line_that_makes_it_a_run_is_in_the_users_file(folder: Folder) -> None:
    assert classify(folder.spec(RUN)).location == Location("run.gin", 5)
    own = RUN + "".join(f"train_script.train.{p} = None\n" for p in ("model", "trainer_cls"))
    assert classify(folder.spec(own)).location == Location("run.gin", 10)


def test_the_package_itself_stands_for_its_parent(folder: Folder) -> None:
    spec = folder.spec(RUN)
    assert program_of(spec, t5x_parent=str(T5X / "t5x")) == program_of(spec, t5x_parent=T5X)
