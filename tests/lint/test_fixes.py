"""Automatic fixes: only mistakes whose meaning is clear are fixed, and no fix makes a config worse."""

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linting import FINETUNE, PRETRAIN, RUN, T5X, TINY, Folder

from t5x_harness.lint.classify import RunIf
from t5x_harness.lint.fixes import Config, Fixes, apply_edits, fix, select, unified_diff, write_atomically
from t5x_harness.spec import Edit, RunSpec
from t5x_harness.system.misspelling import meant


def _fix(folder: Folder, *names: str, run_if: RunIf = RunIf.ALWAYS, may_change: Sequence[str] = ()) -> Fixes:
    allowed = {Path(os.path.realpath(folder.path / name)) for name in (*names, *may_change)}
    configs = [Config(RunSpec((name,), cwd=str(folder.path)), run_if, T5X) for name in names]
    return fix(configs, lambda path: path in allowed)


def _fixed(folder: Folder, gin: str, **kinds: RunIf) -> str:
    """Returns the text of a config after fixing."""
    folder.write({"run.gin": gin})
    files = _fix(folder, "run.gin", **kinds).files
    return files[0].after if files else gin


@pytest.mark.parametrize(
    ("line", "wrong", "right"),
    [
        # GIN07
        ("MODEL_DIR = {}  # here", "gs://bucket/run-1", "'gs://bucket/run-1'"),
        ("MODEL_DIR = {}", "/tmp/run", "'/tmp/run'"),
        ("MIXTURE_OR_TASK_NAME = {}", "wmt_ende", "'wmt_ende'"),
        ("train/utils.DatasetConfig.pack = {}", "false", "False"),
        ("train/utils.DatasetConfig.seed = {}", "null", "None"),
        # GIN19
        ("train/utils.DatasetConfig.batch_size = {} # all", "BATCH_SIZE", "%BATCH_SIZE"),
        # GIN08, GIN09
        ("TRAIN_STEPS = {}  # '200'", "'200'", "200"),
        ("TRAIN_STEPS = {}", "'1e3'", "1_000"),
        ("TRAIN_STEPS = {}", "2e5", "200_000"),
        # GIN06
        ("{}/utils.DatasetConfig.pack = False", "trian", "train"),
        # GIN01
        ("{} = 16", "BATCHSIZE", "BATCH_SIZE"),
        # GIN18
        ("train_script.train.eval_period = {}  # %TRAIN_STEP", "%TRAIN_STEP", "%TRAIN_STEPS"),
        # GIN13, GIN14
        ("train/utils.DatasetConfig.{} = 8", "bach_size", "batch_size"),
        ("train/utils.{}.batch_size = 8", "DatasetConfg", "DatasetConfig"),
        # GIN20
        ("train_script.train.checkpoint_cfg = @utils.{}", "CheckpointConfig", "CheckpointConfig()"),
        # GIN29
        ("train/{}.DatasetConfig.batch_size = 8", "utls", "utils"),
    ],
)
def test_one_line_is_fixed_and_its_comment_kept(folder: Folder, line: str, wrong: str, right: str) -> None:
    assert _fixed(folder, f"{RUN}{line.format(wrong)}\n") == f"{RUN}{line.format(right)}\n"


def test_a_string_gets_the_quotes_of_its_file(folder: Folder) -> None:
    double = RUN.replace("'", '"')
    assert _fixed(folder, f"{double}MODEL_DIR = gs://bkt/x\n") == f'{double}MODEL_DIR = "gs://bkt/x"\n'
    assert _fixed(folder, f"{RUN}MODEL_DIR = gs://bkt/x\n") == f"{RUN}MODEL_DIR = 'gs://bkt/x'\n"


@pytest.mark.parametrize(
    "line",
    [
        "train_script.train.partitioner = partitioning.PjitPartitioner",  # @ and (), or a string?
        "TASK_FEATURE_LENGTHS = FEATURE_LENGTHS",  # %, or a string?
        "train/utils.DatasetConfig.pack = yes",
        "train_script.train.summarize_config_fn = summarize",
        "train/utils.DatasetConfig.batch_size = = 8",
        "MODEL_DIR = 'gs://bucket/run",
        "TRAIN_STEPS = 1.5",
        "TRAIN_STEPS = 'many'",
        "INPUT_LENGTH = 8",
        "LR_1 = 8\ntrain_script.train.stats_period = %LR_2",
        "utils.DatasetConfig.batch_size = 9",  # GIN05: which scope?
        "train/utils.DatasetConfig.bach_size = 8\ntrain/utils.DatasetConfig.batch_size = 16",
        "BATCH_SIZE = 8\nBATCHSIZE = 16",
        "train/utils.DatasetConfig.nothing_like_it = 8",
    ],
)
def test_what_can_be_meant_in_two_ways_is_left(folder: Folder, line: str) -> None:
    folder.write({"run.gin": f"{RUN}{line}\n"})
    assert _fix(folder, "run.gin").files == ()


def test_a_binding_moves_below_the_include_that_overrides_it_with_its_comment(folder: Folder) -> None:
    lines = RUN.splitlines(keepends=True)
    imports, includes, rest = "".join(lines[:3]), "".join(lines[3:5]), "".join(lines[5:])
    lost = "# Small,\n# for a test.\nBATCH_SIZE = 8  # was 128\n"
    assert _fixed(folder, f"{imports}\n{lost}\n{includes}{rest}") == f"{imports}\n{includes}{lost}{rest}"


def test_only_the_last_of_several_lost_bindings_moves(folder: Folder) -> None:
    gin = RUN.replace(f"include '{TINY}'", f"BATCH_SIZE = 8\nBATCH_SIZE = 16\ninclude '{TINY}'")
    after = _fixed(folder, gin)
    places = [after.index(text) for text in ("BATCH_SIZE = 8", f"include '{PRETRAIN}'", "BATCH_SIZE = 16")]
    assert places == sorted(places)


def test_a_comment_that_is_about_several_bindings_stays_with_them(folder: Folder) -> None:
    gin = RUN.replace(f"include '{TINY}'", f"# sizes\nBATCH_SIZE = 8\nMINE = 1\ninclude '{TINY}'")
    assert "# sizes\nMINE = 1\n" in _fixed(folder, gin)


def test_registration_comes_first(folder: Folder) -> None:
    switch, others = "from __gin__ import dynamic_registration  # first\n", ("import seqio\n", "import __main__ as m\n")
    gin = f"# mine\n{others[0]}{switch}{others[1]}"
    assert _fixed(folder, gin, run_if=RunIf.STARTED) == f"# mine\n{switch}{others[0]}{others[1]}"


def test_registration_is_added_with_every_import_that_it_needs(folder: Folder) -> None:
    includes = "".join(RUN.splitlines(keepends=True)[3:])
    text = f"utils.RestoreCheckpointConfig.strict = True\n{includes}adafactor.Adafactor.decay_rate = 0.9\n"
    imports = "from __gin__ import dynamic_registration\nfrom t5x import adafactor\nfrom t5x import utils\n"
    assert _fixed(folder, f"# Mine.\n\n{text}") == f"# Mine.\n\n{imports}{text}"


def test_the_import_that_another_file_has_is_added(folder: Folder) -> None:
    gin = RUN + "seqio.Evaluator.use_memory_cache = False\n"
    assert _fixed(folder, gin) == gin.replace("from t5x import utils\n", "from t5x import utils\nimport seqio\n")


def test_the_head_of_a_block_is_fixed(folder: Folder) -> None:
    block = "trian/utils.DatasetConfig:  # of trian\n  # for trian/\n  pack = False\n  bach_size = 8\n"
    right = "train/utils.DatasetConfig:  # of trian\n  # for trian/\n  pack = False\n  batch_size = 8\n"
    assert _fixed(folder, RUN + block) == RUN + right


def test_names_in_strings_and_comments_stay(folder: Folder) -> None:
    line = "train/utils.DatasetConfg.split = 'utils.DatasetConfg'  # utils.DatasetConfg\n"
    right = "train/utils.DatasetConfig.split = 'utils.DatasetConfg'  # utils.DatasetConfg\n"
    assert _fixed(folder, RUN + line) == RUN + right


def test_a_text_in_a_string_of_several_lines_is_not_taken_for_a_statement(folder: Folder) -> None:
    gin = RUN + "NOTE = = 1\nTEXT = '''\nmode = predict\n'''\n"
    assert _fixed(folder, gin) == gin


def test_an_edit_that_brings_an_error_is_taken_back(folder: Folder) -> None:
    gin = RUN.replace(PRETRAIN, FINETUNE).replace("TRAIN_STEPS = 100", "include 'steps.gin'\nTRAIN_STEP = 200")
    gin += "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000'\n"  # 200 steps are fewer than it has done
    folder.write({"run.gin": gin, "steps.gin": "TRAIN_STEPS = 2000\n"})
    fixes = _fix(folder, "run.gin")
    assert fixes.files == ()
    assert [finding.code for finding in fixes.refused] == ["GIN01"]


def test_a_file_has_to_suit_every_config_that_reads_it(folder: Folder) -> None:
    folder.write(
        {
            "shared.gin": "BATCHSIZE = 16\n",
            "one.gin": RUN + "include 'shared.gin'\n",
            "two.gin": RUN + "include 'shared.gin'\ntrain_script.train.stats_period = %BATCHSIZE\n",
        }
    )
    assert _fix(folder, "one.gin", may_change=["shared.gin"]).files != ()
    fixes = _fix(folder, "one.gin", "two.gin", may_change=["shared.gin"])
    assert fixes.files == ()
    assert [f.code for f in fixes.refused] == ["GIN01"]


def test_a_file_that_the_user_did_not_name_stays(folder: Folder) -> None:
    folder.write({"shared.gin": "BATCHSIZE = 16\n", "run.gin": RUN + "include 'shared.gin'\nTRAIN_STEPS = 1e3\n"})
    fixes = _fix(folder, "run.gin")
    assert [file.shown for file in fixes.files] == ["run.gin"]
    assert fixes.elsewhere == ("shared.gin",)


def test_no_edit_reaches_an_installed_package(folder: Folder) -> None:
    line = "from __gin__ import dynamic_registration\nfrom t5x import utils\nutils.DatasetConfig.bach_size = 8\n"
    inside, outside = "lib/site-packages/pack/mine.gin", "lib/mine.gin"
    folder.write({inside: line, outside: line})
    assert _fix(folder, inside, run_if=RunIf.STARTED).files == ()
    assert _fix(folder, outside, run_if=RunIf.STARTED).files != ()


def test_bindings_of_the_command_line_have_no_edit(folder: Folder) -> None:
    assert folder.only(RUN, "GIN09", bindings=["TRAIN_STEPS = 1e3"]).edits == ()


@pytest.mark.parametrize(
    ("text", "edits", "after"),
    [
        ("a\r\nb\r\nc", [Edit("f", 2, 2, "x\ny\n")], "a\r\nx\r\ny\r\nc"),
        ("a\nb\r\nc\r\n", [Edit("f", 2, 2, "x\n")], "a\nx\r\nc\r\n"),
        ("a\nb", [Edit("f", 2, 2, "x\n")], "a\nx"),
        ("a\nb", [Edit("f", 3, 2, "x\n")], "a\nb\nx"),
        ("a\nb\n", [Edit("f", 2, 1, "x\n"), Edit("f", 2, 1, "y\n"), Edit("f", 2, 2, "")], "a\nx\ny\n"),
        ("a\rb\r", [Edit("f", 1, 1, "x\n")], "x\rb\r"),
        ("a\u2028b\n\x0cc\n", [Edit("f", 2, 2, "x\n")], "a\u2028b\nx\n"),
        ("", [Edit("f", 1, 0, "x\n")], "x\n"),
    ],
)
def test_lines_are_replaced_as_the_file_ends_them(text: str, edits: list[Edit], after: str) -> None:
    assert apply_edits(text, edits) == after


def test_edits_of_one_line_wait_for_each_other() -> None:
    one, other = (Edit("f", 2, 2, "x\n"),), (Edit("f", 1, 1, ""), Edit("f", 2, 3, "y\n"))
    inside, before = (Edit("f", 3, 2, "z\n"),), (Edit("f", 2, 1, "z\n"),)
    assert select([one, other, inside]) == [one, inside]
    assert select([other, inside, before]) == [other, before]
    assert select([before, before]) == [before]


def test_writing_keeps_mode_and_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.gin", tmp_path / "link.gin"
    target.write_bytes(b"A = 1\r\n")
    target.chmod(0o640)
    link.symlink_to("real.gin")
    write_atomically(link, "A = 'é'\r\n")
    assert link.is_symlink()
    assert target.read_bytes() == "A = 'é'\r\n".encode()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.gin", "real.gin"]


def test_what_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("A = 1\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "a.gin", "A = '\ud800'\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.gin", "A = 1\n")]


@pytest.mark.parametrize(
    ("word", "choices", "right"),
    [
        ("BATCHSIZE", ["BATCH_SIZE"], "BATCH_SIZE"),
        ("Batch_Size", ["BATCH_SIZE"], "BATCH_SIZE"),
        ("BACH_SIZE", ["BATCH_SIZE", "EVAL_SIZE"], "BATCH_SIZE"),
        ("BATHC_SIZE", ["BATCH_SIZE"], "BATCH_SIZE"),
        ("BATCH_SIZES", ["BATCH_SIZE"], "BATCH_SIZE"),
        ("INPUT_LENGTH", ["OUTPUT_LENGTH"], None),
        ("NUM_ENCODER_LAYERS", ["NUM_DECODER_LAYERS"], None),
        ("LR_A", ["LR_B"], None),
        ("LAYER1", ["LAYER2"], None),
        ("train_evl", ["train_eval", "train_evil"], None),
        ("train", ["train"], None),
    ],
)
def test_a_slip_of_the_pen_is_told_from_another_name(word: str, choices: list[str], right: str | None) -> None:
    assert meant(word, choices) == right


def test_a_diff_can_be_applied(tmp_path: Path) -> None:
    before, after = "a\r\nb\r\nc", "a\r\nx\r\nc\r\nd"
    (tmp_path / "run.gin").write_bytes(before.encode())
    subprocess.run(
        ["git", "apply", "-p0", "-"], input=unified_diff("run.gin", before, after).encode(), cwd=tmp_path, check=True
    )
    assert (tmp_path / "run.gin").read_bytes() == after.encode()


_LINES = st.sampled_from(
    [*RUN.splitlines(), "MODEL_DIR = gs://b/x # c", "BATCHSIZE = 16", "TRAIN_STEPS = '1e3'", "TRAIN_STEPS = 2e2", "  ",
     "trian/utils.DatasetConfig.pack = false", "train/utils.DatasetConfig:", "  bach_size = BATCH_SIZE", "  seed = 1",
     "train/utils.DatasetConfg.seed = 1", "utls.SaveCheckpointConfig.period = %EVAL_STEP", "EVAL_STEPS = 2e1", "# note",
     "adafactor.Adafactor.decay_rate = 0.9", "import seqio", "from __gin__ import dynamic_registration", "X = '''", "",
     "'''", "X = [", "]", "Y = mine", "train_script.train.partitioner = @partitioning.PjitPartitioner", "É = ü", "$",
     "include 'run.gin'", "include 'gone.gin'", "train_script.train.total_steps = %TRAINSTEPS", "A = 'x\\"]
)  # fmt: skip
_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Returns the folder of all examples, which write the same one file."""
    return Folder(tmp_path_factory.mktemp("fixed"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_LINES, _ENDS), max_size=16), st.booleans(), st.booleans())
def test_any_config_is_fixed_once_and_only_in_the_lines_that_change(
    scratch: Folder, lines: list[tuple[str, str]], whole: bool, ended: bool
) -> None:
    text = (RUN if whole else "") + "".join(line + end for line, end in lines)
    text = text if ended else text.rstrip("\r\n")
    (scratch.path / "run.gin").write_bytes(text.encode())
    files = _fix(scratch, "run.gin", run_if=RunIf.STARTED).files
    assert (scratch.path / "run.gin").read_bytes() == text.encode()
    if not files:
        return
    after = files[0].after
    assert files[0].before == text
    assert _is_ended(after) == _is_ended(text)
    (scratch.path / "run.gin").write_bytes(after.encode())
    assert _fix(scratch, "run.gin", run_if=RunIf.STARTED).files == ()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["a", "", "b\u2028", "é\x0c"]), min_size=1, max_size=8), _ENDS, st.data())
def test_bytes_outside_the_edited_lines_stay(lines: list[str], end: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first - 1, len(lines)))
    new = data.draw(st.sampled_from(["", "x\n", "x\n\ny\n"]))
    before, cut, behind = lines[: first - 1], lines[first - 1 : last], lines[last:]
    joined = ["".join(f"{line}{end}" for line in part) for part in (before, cut, behind)]
    after = apply_edits("".join(joined), [Edit("f", first, last, new)])
    assert after == joined[0] + new.replace("\n", end) + joined[2]


def _is_ended(text: str) -> bool:
    return text.endswith(("\n", "\r"))
