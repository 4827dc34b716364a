"""docs/reference.md lists all public names and nothing else, and the names that it lists can be imported."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import options_of

import t5x_harness
import t5x_harness.auxiliary
import t5x_harness.vertex
from t5x_harness import variables
from t5x_harness.commands import arguments
from t5x_harness.fixtures import every
from t5x_harness.settings.options import JOBS, RUNS, reference


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def cells(text: str) -> list[list[str]]:
    """Returns the rows of all tables of a text, without their header rows."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    heads = [number - 1 for number, row in enumerate(rows) if set(row[0]) == {"-"} and len(row[0]) > 1]
    return [row for number, row in enumerate(rows) if number not in heads and number - 1 not in heads]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_public_name_is_listed_and_no_other(page: str) -> None:
    named = [name for first, *_ in cells(section(page, "Python names")) for name in quoted(first)]
    assert sorted(named) == sorted(t5x_harness.__all__)


@pytest.mark.parametrize(
    "package", [t5x_harness, t5x_harness.vertex, t5x_harness.auxiliary], ids=lambda package: package.__name__
)
def test_public_names_resolve_and_a_type_checker_sees_the_same(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert all(getattr(package, name) is not None for name in names)
    tree = ast.parse(inspect.getsource(package))  # type: ignore[arg-type]
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        (node.module, alias.name)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(name for _, name in imported) == sorted(names)
    for module, name in imported:
        assert getattr(sys.modules[str(module)], name) is getattr(package, name)


def test_dir_has_them_and_an_unknown_name_is_an_attribute_error() -> None:
    assert set(t5x_harness.__all__) <= set(dir(t5x_harness))
    with pytest.raises(AttributeError, match="module 't5x_harness' has no attribute 'RunSpecs'"):
        t5x_harness.RunSpecs  # noqa: B018


def test_importing_the_package_imports_next_to_nothing() -> None:
    program = (
        "import __future__, sys, typing; before = set(sys.modules); import t5x_harness;"
        "print(sorted(set(sys.modules) - before));"
        "t5x_harness.RunSpec, t5x_harness.T5XRun, t5x_harness.FakeGcs, t5x_harness.VertexTarget, t5x_harness.CONFIGS;"
        "print({'jax', 'numpy', 'tensorflow', 'seqio', 't5x', 'google.cloud.aiplatform', 'grpc'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['t5x_harness', 't5x_harness.version']", "set()"]


def test_docs_import_public_names_only(repository: Path) -> None:
    """The page on workers explains private code, and the pages of rules use modules that users' Gin files import."""
    allowed = {
        "t5x_harness": {*t5x_harness.__all__, "preemption"},
        "t5x_harness.vertex": set(t5x_harness.vertex.__all__),
    }
    allowed["t5x_harness.auxiliary"] = set(t5x_harness.auxiliary.__all__)
    allowed["t5x_harness.sample_tasks"] = {"CONFIGS", "span_corruption", "vocabularies"}
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    imports = [
        (page.name, module, name.strip())
        for page in pages
        if page.name != "workers.md"
        for module, names in re.findall(r"^from (t5x_harness[\w.]*) import (.+)$", page.read_text(), re.MULTILINE)
        for name in names.split(",")
    ]
    assert len(imports) > 5
    assert [found for found in imports if found[2] not in allowed.get(found[1], ())] == []


def test_every_fixture_is_listed_with_its_type_and_scope(page: str, pytester: pytest.Pytester) -> None:
    rows = {quoted(name)[0]: (quoted(kind)[0], scope) for name, kind, scope, _ in cells(section(page, "Fixtures"))}
    assert sorted(rows) == sorted(name for name in vars(every) if name[0].isalpha())
    shown = pytester.runpytest_subprocess("--fixtures").stdout.str()
    for name, (kind, scope) in rows.items():
        (line,) = re.findall(rf"^{name}\b.*", shown, re.MULTILINE)
        assert ("[session scope]" in line) is (scope == "session"), name
        assert scope in ("session", "function")
        annotation = str(inspect.signature(getattr(every, name)).return_annotation)
        assert re.search(rf"\b{kind}\b", annotation), f"{name}: {annotation}"


def test_every_marker_is_listed(page: str, pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--markers").stdout.str()
    named = [re.split(r"\W", quoted(first)[0])[0] for first, _ in cells(section(page, "Markers"))]
    assert named == [name for name in re.findall(r"^@pytest.mark.(\w+)", shown, re.MULTILINE) if name in named]
    assert set(named) == {"smoke", "aot", "slice", "preempt", "network", "tpu", "auxiliary"}


def test_every_option_and_ini_value_of_pytest_is_listed(page: str, pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig()
    groups = [group for group in config._parser._groups if group.name.startswith("t5x-harness")]
    options = {name for group in groups for option in group.options for name in option.names()}
    rows = cells(section(page, "Options and settings"))
    listed = {name for row in rows for name in quoted(row[0]) if name.startswith("--")} - {"--gin.NAME=VALUE"}
    assert listed | {row.old for row in (*RUNS, *JOBS)} == options | {""}
    assert {name for row in rows for name in quoted(row[1])} == {
        n for n in config._parser._inidict if n.startswith("t5x_")
    }


def test_the_tables_are_those_of_the_program(page: str) -> None:
    for rows in (RUNS, JOBS):
        assert reference(rows) in page, f"write it anew:\n{reference(rows)}"


def test_the_options_of_commands_are_there(page: str) -> None:
    jobs = cells(reference(JOBS))
    for row in cells(section(page, "Options and settings")):
        of_submit = any(row[0] == cell[0] and row[4] == cell[4] for cell in jobs)
        for name in (name for name in quoted(row[4]) if name.startswith("--") and "=" not in name):
            assert name in options_of("submit" if of_submit else "run"), name


def test_the_variables_and_statuses_are_the_programs(page: str) -> None:
    named = re.findall(r"`(T5X_HARNESS_\w+?)(?:_\*)?`", page)
    values = {value for name, value in vars(variables).items() if name.isupper()}
    prefix = variables.VERTEX_PREFIX
    assert [n for n in named if n not in values and not f"{n}_".startswith(prefix)] == []
    listed = {int(row[0]) for row in cells(section(page, "Codes and exit statuses"))}
    assert listed == {arguments.FINE, arguments.FOUND, arguments.USAGE, arguments.INTERRUPTED}
