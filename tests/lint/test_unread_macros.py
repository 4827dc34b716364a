"""GIN01 and GIN02: why nothing reads a macro."""

from __future__ import annotations

from linting import RUN, Folder

from t5x_harness.spec import Severity

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


def test_a_macro_beside_its_own_parameter_can_go(folder: Folder) -> None:
    gin = RUN + "BATCH_SIZE = 8\ntrain/utils.DatasetConfig.batch_size = 16\n"
    gin += "train_eval/utils.DatasetConfig.batch_size = 16\n"
    (finding,) = folder.findings(gin)
    assert (finding.code, finding.severity) == ("GIN02", Severity.WARNING)
    assert finding.message.endswith("train/utils.DatasetConfig.batch_size, which read it, is 16 (run.gin:11)")
    assert finding.fix == "remove it, or use %BATCH_SIZE in train/utils.DatasetConfig.batch_size"
