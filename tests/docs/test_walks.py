"""Each walk of docs/architecture.md names at most eight files, and definitions that refer to each other in order."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/architecture.md").read_text()
WALKS = {
    title: re.findall(r"^\d+\. `([\w./]+)`, `([\w.]+)`(?: \(`([\w./]+)`\))?: ", text, re.MULTILINE)
    for title, text in re.findall(r"^### (.+)\n((?:(?!^#).*\n)+)", PAGE, re.MULTILINE)
}

pytestmark = pytest.mark.fast


def parsed(file: str) -> ast.Module:
    path = next(path for path in (REPOSITORY / file, REPOSITORY / "t5x_harness" / file) if path.is_file())
    return ast.parse(path.read_text())


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yields the definitions of a module and its classes with their names, such as ``Run.stage``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
            yield from definitions(node, f"{prefix}{node.name}.") if isinstance(node, ast.ClassDef) else ()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield f"{prefix}{target.id}", node


def words_of(node: ast.AST) -> set[str]:
    """Returns the names and attributes of code and the words of its strings, which may name code of another process."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute):
            found.add(part.id if isinstance(part, ast.Name) else part.attr)
        elif isinstance(part, ast.alias):
            found.update(part.name.split("."))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            found.update(re.findall(r"\w+", part.value) if " " not in part.value else ())
    return found


def reached(file: str, name: str) -> set[str]:
    """Returns the words of a definition and of all that it refers to in its file; raises KeyError if it is missing."""
    of_file: dict[str, list[ast.AST]] = {}
    tree = parsed(file)
    for full, node in definitions(tree):
        of_file.setdefault(full, []).append(node)
        of_file.setdefault(full.rpartition(".")[2], []).append(node)
    words, todo = set[str](), of_file[name][:]
    for node in todo:
        new = words_of(node) - words
        words |= new
        todo += [each for word in new for each in of_file.get(word, ()) if each not in todo]
    return words


def refers(file: str, name: str, to_file: str, to_name: str) -> bool:
    """Tells whether a step refers to another one, by its name or by collecting the modules of its package."""
    words = reached(file, name)
    collects = {"rules_in", Path(to_file).parent.name} & words and Path(to_file).parent.name == "rules"
    return to_name.rpartition(".")[2] in words or to_name.partition(".")[0] in words or bool(collects)


def test_there_are_six_walks() -> None:
    assert list(WALKS) == ["A smoke run", "A finding", "A storage request", "A job", "An option", "A rule"]


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_few_files(title: str) -> None:
    files = {file for step in WALKS[title] for file in (step[0], step[2]) if file}
    assert 6 <= len(files) <= 8, files


@pytest.mark.parametrize("title", WALKS)
def test_each_step_is_joined_to_an_earlier_one(title: str) -> None:
    steps = WALKS[title]
    assert len(steps) > 4
    reached(*steps[0][:2])
    apart = []
    for number, (file, name, caller) in enumerate(steps[1:], start=1):
        if caller:
            joined = name.rpartition(".")[2] in words_of(parsed(caller))
        else:
            before = [step[:2] for step in steps[:number]]
            joined = any(refers(*other, file, name) or refers(file, name, *other) for other in before)
        if not joined:
            apart.append(f"{file}, {name}")
    assert apart == []
