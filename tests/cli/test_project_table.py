"""``[tool.t5x_harness]``: its meaning, and the messages about mistakes in it."""

from pathlib import Path

import pytest

from t5x_harness.settings.configuration import files_of, require_matches
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.project import ProjectConfig, ProjectError, find_project, load_project
from t5x_harness.spec import Mode

TABLE = """\
[project]
name = "x"

[tool.t5x_harness]
gin_files = ["configs/*.gin"]
search_paths = ["configs"]
python_path = ["src"]
slice = "v3-32"
bindings = ["USE_CACHED_TASKS = False"]

[[tool.t5x_harness.runs]]
name = "small"
gin_files = ["model.gin", "run.gin"]
mode = "eval"

[tool.t5x_harness.runs.bindings]
TASK = "my_task"
LENGTHS = { inputs = 8, targets = [1, 2.5, true] }
MODEL = "%OTHER"
OPT = "@adafactor.Adafactor()"

[[tool.t5x_harness.runs]]
name = "big"
gin_files = ["run.gin"]
slice = "v4-8"
search_paths = ["more"]
bindings = ["A = 1"]
"""


def _load(folder: Path, text: str) -> ProjectConfig:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return load_project(folder)


def test_the_whole_table(tmp_path: Path) -> None:
    project = _load(tmp_path, TABLE)
    assert {key: value for key, value in project.layer.items() if key != "runs"} == {
        "gin_files": ("configs/*.gin",),
        "search_paths": (f"{tmp_path}/configs",),
        "python_path": (f"{tmp_path}/src",),
        "slice": "v3-32",
        "bindings": ("USE_CACHED_TASKS = False",),
    }
    small, big = project.runs
    assert (small.name, small.gin_files, small.line) == ("small", ("model.gin", "run.gin"), 11)
    assert small.layer["mode"] == Mode.EVAL
    assert small.layer["bindings"] == (
        "TASK = 'my_task'",
        "LENGTHS = {'inputs': 8, 'targets': [1, 2.5, True]}",
        "MODEL = %OTHER",
        "OPT = @adafactor.Adafactor()",
    )
    assert (big.layer["slice"], big.line) == ("v4-8", 22)


def test_prices_are_numbers_by_generation(tmp_path: Path) -> None:
    assert _load(tmp_path, "[tool.t5x_harness.prices]\nv3 = 2\nv5e = 0.55\n").layer["prices"] == (
        ("v3", 2.0),
        ("v5e", 0.55),
    )


def test_the_nearest_project_above_counts(tmp_path: Path) -> None:
    (tmp_path / "configs" / "deep").mkdir(parents=True)
    (tmp_path / "configs" / "a.gin").touch()
    _load(tmp_path, TABLE)
    project = find_project(tmp_path / "configs" / "deep")
    assert project.root == tmp_path
    assert files_of(project.root, project.gin_files) == [tmp_path / "configs" / "a.gin"]


@pytest.mark.parametrize(
    ("listed", "line", "message"),
    [
        ('["configs/a.gin", "configs/b.gin"]', 2, "there is no file configs/b.gin; did you mean configs/a.gin?"),
        ('[\n  "configs/a.gin",\n  "cnofigs/*.gin",\n]', 4,
         "'cnofigs/*.gin' matches no file below {root}; did you mean configs/*.gin?"),
        ('["*.gin"]', 2, "'*.gin' matches no file below {root}; did you mean configs/*.gin?"),
        ('["nothing/of/this.gin"]', 2, "there is no file nothing/of/this.gin"),
        ('["configs"]', 2, "there is no file configs"),
        ('["configs/*.json"]', 2, "'configs/*.json' matches no file below {root}; did you mean configs/*.gin?"),
    ],
)  # fmt: skip
def test_a_configured_name_that_matches_nothing_is_an_error_at_its_line(
    tmp_path: Path, listed: str, line: int, message: str
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.gin").touch()
    project = _load(tmp_path, f"[tool.t5x_harness]\ngin_files = {listed}\n")
    with pytest.raises(SettingsError) as caught:
        require_matches(tmp_path, project.gin_files)
    shown = message.replace("{root}", str(tmp_path))
    assert str(caught.value) == f"{tmp_path}/pyproject.toml:{line}: gin_files: {shown}"


def test_no_table_is_an_empty_one(tmp_path: Path) -> None:
    assert load_project(tmp_path) == ProjectConfig(root=tmp_path)
    assert _load(tmp_path, "[project]\nname = 'x'\n") == ProjectConfig(root=tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[tool.t5x_harness]\n\ngin_file = []\n", 3, "unknown key 'gin_file': did you mean gin_files?"),
        ("[tool.t5x_harness]\nxyz = 1\n", 2,
         "unknown key 'xyz': there are gin_files, runs, samples, prices, bindings, search_paths, python_path, slice, "
         "gcs_root, standins, read_seconds, gcs, hosts, tpu_numerics, exact_numerics, cpu_isa, aot, resume, "
         "plan_golden, ignore, select, strict, vertex, tpu"),
        ("[tool.t5x_harness]\nread_seconds = '5'\n", 2,
         "read_seconds has to be a whole number of seconds, at least 1, not '5'"),
        ("[tool.t5x_harness]\ntpu_numerics = 1\n", 2, "tpu_numerics has to be true or false, not 1"),
        ("[tool.t5x_harness]\nstrict = 'yes'\n", 2, "strict has to be true or false, not 'yes'"),
        ("[tool.t5x_harness]\nselect = ['gin02']\n", 2, "select: no rule has the code 'gin02'; did you mean GIN02?"),
        ("[tool.t5x_harness]\nslice = 8\n", 2, "slice has to be a string, not 8"),
        ("[tool.t5x_harness]\ngin_files = 'a.gin'\n", 2, "gin_files has to be a list of strings, not 'a.gin'"),
        ("[tool]\nt5x_harness = 3\n", 1, "[tool.t5x_harness] has to be a table"),
        ("[tool.t5x_harness.runs]\nname = 'x'\n", 1,
         "runs are declared as [[tool.t5x_harness.runs]], not as {'name': 'x'}"),
        ("\n[[tool.t5x_harness.runs]]\nname = 'x'\n", 2, "a run needs a name and gin_files"),
        ("[[tool.t5x_harness.runs]]\nname = 'x'\ngin_files = ['a']\nmode = 'trian'\n", 4,
         "mode 'trian' is none of train, eval, infer"),
        ("[[tool.t5x_harness.runs]]\nname = 'x'\ngin_files = ['a']\n"
         "[[tool.t5x_harness.runs]]\ngin_files = ['a']\nname = 'x'\n", 6,
         "two runs are called 'x': give each its own name"),
        ("[[tool.t5x_harness.runs]]\nname = 'x'\ngin_files = ['a']\nslices = 'v3-8'\n", 4,
         "unknown key 'slices': did you mean slice?"),
        ("[tool.t5x_harness]\nstandins = 'none'\n", 2, "standins 'none' is none of off, missing, all"),
        ("[tool.t5x_harness]\nsamples = 3\n", 2, "samples has to be a table of tasks and their rows, not 3"),
        ("[tool.t5x_harness.samples]\nmine = [{ a = 1 }, { b = 1 }]\n", 2,
         "samples: mine: row 1 lacks a, which row 0 has"),
        ("[tool.t5x_harness.samples]\nmine = [{ a = 2020-01-01 }]\n", 2,
         "samples: Object of type date is not JSON serializable"),
        ("[tool.t5x_harness.vertex]\nproject = 'p'\nbuckets = 'b'\n", 3,
         "unknown key 'buckets': did you mean bucket?"),
        ("[tool.t5x_harness.vertex]\nproject = 1\n", 2, "project has to be a string, not 1"),
        ("[tool.t5x_harness]\nvertex = 1\n", 2, "vertex has to be a table, not 1"),
        ("[tool.t5x_harness.tpu]\nsteps = 8\naccelerator_typ = 'TPU_V3'\n", 3,
         "tpu: no argument 'accelerator_typ': did you mean accelerator_type?"),
        ("[tool.t5x_harness]\nprices = 2\n", 2, "prices has to be a table of TPU generations, not 2"),
        ("[tool.t5x_harness.prices]\nv5 = 2\n", 2, "unknown key 'v5': did you mean v5p?"),
        ("[tool.t5x_harness.prices]\nv2 = 1\nv3 = '2 USD'\n", 3,
         "v3 has to be a price in US dollars for an hour of one chip, not '2 USD'"),
        ("[tool.t5x_harness.prices]\nv3 = 0\n", 2,
         "v3 has to be a price in US dollars for an hour of one chip, not 0"),
        ("[tool.t5x_harness]\nbindings = { A = 2020-01-01 }\n", 2,
         "bindings: 2020-01-01 is not a Gin value: give a string, a number, a boolean, a list or a table"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_fix(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(ProjectError) as caught:
        _load(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/pyproject.toml:{line}: {message}"


def test_what_is_no_toml_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"pyproject.toml: not valid TOML: .*line 1"):
        _load(tmp_path, "[tool\n")
