"""Gin files bind the same values as T5X's, and programs parse Gin's flags as T5X's do, or use Fiddle instead."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fiddle as fdl
import gin
import pytest
from absl.testing import flagsaver
from fiddle import absl_flags as fdl_flags
from gin import config_parser
from t5x import config_utils, gin_utils

TESTS = Path(__file__).parents[1]
EMBEDDED = TESTS.parent / "t5x_harness" / "embedded"
RECORD: dict[str, dict[str, Any]] = json.loads((TESTS / "reference" / "gin_files.json").read_text())
OURS = sorted(str(path.relative_to(EMBEDDED)) for path in EMBEDDED.rglob("*.gin"))


class _AsRecorded(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> str:
        return f"@{scoped_configurable_name}{'()' if evaluate else ''}"

    def macro(self, macro_name: str) -> str:
        return f"%{macro_name}"


def parse(path: Path) -> list[Any]:
    with path.open() as file:
        return list(config_parser.ConfigParser(file, _AsRecorded()))


def facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"bindings": [], "imports": [], "includes": []}
    for statement in parse(path):
        match statement:
            case config_parser.ImportStatement():
                found["imports"].append(statement.format())
            case config_parser.IncludeStatement():
                found["includes"].append(statement.filename)
            case config_parser.BindingStatement(scope=scope, selector=selector, arg_name=arg):
                name = f"{scope}/{selector}" if scope else selector
                found["bindings"].append([f"{name}.{arg}" if arg else name, statement.value])
    return found


@pytest.mark.parametrize("name", OURS)
def test_file_binds_what_t5x_binds(name: str) -> None:
    assert name in RECORD, "no T5X file of that name is on record"
    ours = json.loads(json.dumps(facts(EMBEDDED / name)))  # in the form of the record: tuples as lists
    assert ours == RECORD[name]


def test_all_files_of_t5x_are_there() -> None:
    assert sorted(RECORD) == OURS


@pytest.mark.parametrize("name", OURS)
def test_folder_is_a_package_so_that_includes_resolve(name: str) -> None:
    # Gin's resource reader raises TypeError for folders that are not packages.
    assert (EMBEDDED / name).parent.joinpath("__init__.py").is_file()


def test_includes_name_files_that_are_there() -> None:
    missing = {
        (name, included)
        for name in OURS
        for included in facts(EMBEDDED / name)["includes"]
        if not (EMBEDDED / included).is_file()
    }
    # T5X never published this file, which umT5's pretraining includes.
    assert missing == {
        ("t5x/examples/scalable_t5/umt5/runs/pretraining_common.gin", "t5x/configs/runs/pretrain_deterministic.gin")
    }


@pytest.mark.parametrize(
    ("name", "binding", "value"),
    [
        ("t5_1_1/base.gin", "network.T5Config.mlp_activations", ("gelu", "linear")),
        ("t5_1_0/base.gin", "network.T5Config.mlp_activations", ("relu",)),
        ("byt5/base.gin", "network.T5Config.mlp_activations", ("gelu", "linear")),
        (
            "t5_1_1/examples/base_wmt19_ende_train.gin",
            "partitioning.PjitPartitioner.model_parallel_submesh",
            (1, 1, 1, 2),
        ),
    ],
)
def test_tuples_stay_tuples(name: str, binding: str, value: tuple[Any, ...]) -> None:
    # JSON records them as lists, but dataclasses that JAX hashes need tuples.
    assert dict(facts(EMBEDDED / "t5x/examples/t5" / name)["bindings"])[binding] == value


@pytest.mark.parametrize("name", OURS)
def test_file_says_what_it_is_for_and_imports_first(name: str) -> None:
    assert (EMBEDDED / name).read_text().startswith("# ")
    kinds = [type(statement).__name__ for statement in parse(EMBEDDED / name)]
    if "ImportStatement" in kinds and "small_c4_pretrain" not in name:  # in that file, the import follows the includes
        assert kinds[0] == "ImportStatement"


@pytest.fixture(autouse=True)
def clean_gin() -> Iterator[None]:
    gin.clear_config()
    prefixes = list(gin.config._LOCATION_PREFIXES)  # search paths, which clearing does not change
    yield
    gin.clear_config()
    gin.config._LOCATION_PREFIXES[:] = prefixes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.gin").write_text("SIZE = 1\nNAME = 'base'\n")
    (tmp_path / "more.gin").write_text("SIZE = 2\n")
    return tmp_path


def test_later_files_and_then_bindings_win(folder: Path) -> None:
    gin_utils.parse_gin_flags([str(folder)], ["base.gin", "more.gin"], ["NAME = 'flag'"])
    assert (gin.query_parameter("%SIZE"), gin.query_parameter("%NAME")) == (2, "flag")
    with pytest.raises(RuntimeError, match="locked"):
        gin.parse_config("SIZE = 3")


def test_config_may_stay_open(folder: Path) -> None:
    gin_utils.parse_gin_flags([str(folder)], ["base.gin"], [], finalize_config=False)
    gin.parse_config("SIZE = 3")
    assert gin.query_parameter("%SIZE") == 3


def test_unknown_names_fail_unless_skipped(folder: Path) -> None:
    with pytest.raises(ValueError, match="No configurable matching 'no_such_function'"):
        gin_utils.parse_gin_flags([], [], ["no_such_function.x = 1"])
    gin_utils.parse_gin_flags([], [], ["no_such_function.x = 1"], skip_unknown=True)


def test_short_flags_become_bindings() -> None:
    args = ["program", "--gin.SIZE=3", "--gin.NAME='a=b'", "--gin_file=x", "--gin.train/f.x=@g()"]
    assert gin_utils.rewrite_gin_args(args) == [
        "program",
        "--gin_bindings=SIZE = 3",
        "--gin_bindings=NAME = 'a=b'",
        "--gin_file=x",
        "--gin_bindings=train/f.x = @g()",
    ]


class Writer:
    def __init__(self) -> None:
        self.texts: list[tuple[int, dict[str, str]]] = []
        self.flushed = 0

    def write_texts(self, step: int, texts: dict[str, str]) -> None:
        self.texts.append((step, texts))

    def flush(self) -> None:
        self.flushed += 1


def test_config_is_written_to_file_and_tensorboard(tmp_path: Path) -> None:
    gin_utils.parse_gin_flags([], [], ["SIZE = 7"])
    writer = Writer()
    gin_utils.summarize_gin_config(str(tmp_path / "new" / "run"), writer, 12)
    text = (tmp_path / "new" / "run" / "config.gin").read_text()
    assert "SIZE = 7\n" in text
    assert writer.texts == [(12, {"config": gin.markdown(text)})]
    assert writer.flushed == 1
    gin_utils.summarize_gin_config(str(tmp_path), None, 0)
    assert (tmp_path / "config.gin").read_text() == text


def test_functions_for_configs() -> None:
    gin.parse_config(
        """
        A = 2
        sum_fn.var1 = %A
        sum_fn.var2 = 3
        bool_fn.var1 = %A
        string_split_fn.text = 'a,b,c'
        string_split_fn.separator = ','
        last/string_split_fn.index = -1
        """
    )
    assert (gin_utils.sum_fn(), gin_utils.bool_fn(), gin_utils.string_split_fn()) == (5, True, ["a", "b", "c"])
    with gin.config_scope("last"):
        assert gin_utils.string_split_fn(maxsplit=1) == "b,c"


def train(model_dir: str, steps: int = 1, summarize_config_fn: Any = None) -> tuple[str, int]:
    if summarize_config_fn is not None:
        summarize_config_fn(model_dir=model_dir, summary_writer=None, step=0)
    return model_dir, steps


def other(model_dir: str) -> str:
    return model_dir


def base() -> fdl.Config[Any]:
    return fdl.Config(train, model_dir="runs/1", summarize_config_fn=config_utils.summarize_fiddle_config)


def of_other() -> fdl.Config[Any]:
    return fdl.Config(other, model_dir="runs/1")


@pytest.fixture(scope="module", autouse=True)
def defined_flags() -> None:
    """``--gin_file`` and the other flags are those of T5X's program. A process can define them only once."""
    importlib.import_module("t5x.main")


@pytest.fixture
def given() -> Iterator[Callable[..., None]]:
    with flagsaver.flagsaver():
        yield lambda *args: fdl_flags.flags_parser([sys.argv[0], *args])


def here(name: str) -> str:
    return f"--fdl_config={__name__}.{name}"


def test_flags_make_a_function_without_arguments(given: Any) -> None:
    given(here("base"), "--fdl.steps=5", "--fdl.summarize_config_fn=None")
    assert config_utils.using_fdl()
    config = config_utils.config_with_fiddle(train)
    assert isinstance(config, fdl.Partial)
    assert fdl.build(config)() == ("runs/1", 5)


def test_config_is_written_as_text_and_json(given: Any, tmp_path: Path) -> None:
    given(here("base"), f"--fdl.model_dir='{tmp_path}'", "--fdl.steps=3")
    fdl.build(config_utils.config_with_fiddle(train))()
    text = (tmp_path / "fiddle_config.txt").read_text()
    assert "steps=3" in text
    assert "get_current_fiddle_config=<" not in text
    assert json.loads((tmp_path / "fiddle_config.json").read_text())["root"]


def test_preparing_and_sanitizing_leave_the_original_alone() -> None:
    original = base()
    prepared = config_utils.prepare_to_summarize(original)
    assert prepared.summarize_config_fn.get_current_fiddle_config() is original
    assert config_utils.sanitize_summary_getter(prepared).summarize_config_fn.get_current_fiddle_config is None
    assert "get_current_fiddle_config" not in original.summarize_config_fn.__arguments__


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_short_flag_without_value_is_explained(self) -> None:
        with pytest.raises(ValueError, match="must be of the form") as error:
            gin_utils.rewrite_gin_args(["--gin.SIZE", "3"])
        assert str(error.value) == "Gin bindings must be of the form '--gin.<param>=<value>', got: --gin.SIZE"
        assert error.value.__notes__ == ["The value belongs into the same argument, after '=' and without a space."]

    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(TypeError, match="installed gin-config can't show where bindings come from"):
            gin_utils.get_gin_config_str(show_provenance=True)
        with pytest.raises(ValueError, match=r"pass the config through t5x\.config_utils\.prepare_to_summarize before"):
            fdl.build(config_utils.summarize_fiddle_config)("runs/1", None, 0)

    def test_without_flags_fiddle_is_not_used(self, given: Any) -> None:
        given()
        assert not config_utils.using_fdl()
        with pytest.raises(AssertionError, match="needs --fdl_config or --fdl_config_file"):
            config_utils.config_with_fiddle(train)

    def test_gin_beside_fiddle_is_refused(self, given: Any) -> None:
        given(here("base"), "--gin_file=run.gin")
        with pytest.raises(ValueError, match="Must pass exactly one") as error:
            config_utils.config_with_fiddle(train)
        assert str(error.value).startswith(
            "Must pass exactly one of `--fdl_config_file`, `--fdl_config`, or `--gin_file`"
        )
        assert str(error.value).endswith("--gin_file=['run.gin'].")

    def test_config_of_another_function_is_refused(self, given: Any) -> None:
        given(here("of_other"))
        with pytest.raises(ValueError, match="must configure") as error:
            config_utils.config_with_fiddle(train)
        assert f"must configure {__name__}.train, but they configure {__name__}.other." in str(error.value)
