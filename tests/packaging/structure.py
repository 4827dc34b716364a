"""The package as data: its modules, their imports, and counts that measure its simplicity.

``python tests/packaging/structure.py`` prints the counts. The tests next to it check those that must stay at zero.
"""

import ast
import collections
import dataclasses
import functools
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "t5x_harness"
MAPPED = ("plugin", "fixtures", "sample_tasks")
LONGEST_FILE = 400


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the package under its name within the package, such as ``lint.reader``."""

    name: str
    path: Path

    @property
    def room(self) -> str:
        return self.name.split(".")[0]

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


@functools.cache
def modules_of(repository: Path) -> dict[str, Module]:
    """Returns the modules of the package by name, without the embedded T5X, which is a separate package."""
    found = {}
    for top in (PACKAGE, *MAPPED):
        for path in sorted((repository / top).rglob("*.py")):
            parts = path.relative_to(repository).with_suffix("").parts[top == PACKAGE :]
            if parts[0] != "embedded" and "sample_project" not in parts:
                name = ".".join(parts).removesuffix(".__init__")
                found[name] = Module(name, path)
    return found


def imports_of(module: Module, modules: dict[str, Module]) -> dict[str, int]:
    """Returns the package's modules that a module imports anywhere in its text, each with its last import's line."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    found = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*([PACKAGE] if node.level else []), *above, *filter(None, [node.module])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == PACKAGE:
                inside = name.removeprefix(PACKAGE).removeprefix(".")
                known = inside if inside in modules else inside.rpartition(".")[0]
                found[known or "__init__"] = node.lineno
    return found


@functools.cache
def arrows_of(repository: Path) -> dict[str, dict[str, int]]:
    """Returns, for every module, the modules that it imports and the lines of these imports."""
    modules = modules_of(repository)
    return {name: imports_of(module, modules) for name, module in modules.items()}


def circle(arrows: dict[str, dict[str, int]]) -> list[str]:
    """Returns modules that import each other in a circle; empty if no modules do."""
    try:
        graphlib.TopologicalSorter({name: set(to) - {name} for name, to in arrows.items()}).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def names_of_modules(module: Module, modules: dict[str, Module]) -> Iterator[tuple[int, str]]:
    """Yields the modules that strings of a module name, as for ``import_module``, each with its line.

    Docstrings may name any module.
    """
    said = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            for named in re.findall(rf"(?<!tool\.)\b{PACKAGE}\.([\w.]+)", node.value):
                parts = named.split(".")
                names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
                if known := next((name for name in names if name in modules), None):
                    yield node.lineno, known


def classes_by_name(repository: Path) -> dict[str, list[str]]:
    """Returns the modules that define a class, by the name of the class."""
    found = collections.defaultdict(list)
    for module in modules_of(repository).values():
        for node in module.classes:
            found[node.name].append(module.name)
    return found


def public_names(repository: Path) -> set[str]:
    """Returns the names that the package itself offers."""
    tree = modules_of(repository)["__init__"].tree
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def calls_of(repository: Path, name: str) -> list[str]:
    """Returns the places that call a bare name, such as those that construct a class."""
    return [
        f"{module.name}:{node.lineno}"
        for module in modules_of(repository).values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def long_files(repository: Path) -> dict[str, int]:
    return {name: module.lines for name, module in modules_of(repository).items() if module.lines > LONGEST_FILE}


def codes_of(repository: Path) -> dict[str, list[str]]:
    """Returns, by code, the modules that define its mistake: with a ``Rule`` whose first argument it is."""
    found = collections.defaultdict(list)
    for module in modules_of(repository).values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Rule" and node.args:
                found[ast.unparse(node.args[0])].append(module.name)
    return found


def modules_that_set(repository: Path, option: str) -> list[str]:
    """Returns the modules that declare an option, list it or read it from the settings; receiving it does not count."""
    found = []
    for module in modules_of(repository).values():
        fields = [s for c in module.classes for s in c.body if isinstance(s, ast.AnnAssign)]
        declared = any(isinstance(field.target, ast.Name) and field.target.id == option for field in fields)
        nodes = list(ast.walk(module.tree))
        listed = any(isinstance(node, ast.Constant) and node.value == option for node in nodes)
        taken = any(isinstance(node, ast.Attribute) and node.attr == option for node in nodes)
        if declared or listed or taken:
            found.append(module.name)
    return found


def classes_on_the_way(repository: Path) -> list[str]:
    """Returns the classes between a RunSpec and its RunResult: those with a method that takes a stage or a spec.

    The zygote and the fork are added because they pass on a stage by its name. Protocols and recorders are left out.
    """
    found = ["Zygote", "ForkedRun"]
    for module in modules_of(repository).values():
        if module.room in ("runs", "execute"):
            for node in module.classes:
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                taken = {
                    argument.annotation.id
                    for method in methods
                    for argument in (*method.args.args, *method.args.kwonlyargs)
                    if isinstance(argument.annotation, ast.Name) and {"stage", "run"} & {each.name for each in methods}
                }
                is_protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
                if taken & {"Stage", "RunSpec", "Run"} and not is_protocol:
                    found.append(node.name)
    return found


def counts(repository: Path) -> Iterator[tuple[str, int]]:
    """Yields the name of each count, and its number."""
    modules = modules_of(repository)
    names = classes_by_name(repository)
    yield "lines of the package, without the embedded T5X", sum(module.lines for module in modules.values())
    yield "lines of the tests", sum(path.read_text().count("\n") for path in (repository / "tests").rglob("*.py"))
    yield "rooms", len({module.room for module in modules.values()})
    yield "modules", len(modules)
    yield "fields of RunSpec", fields_of(modules["spec.run"], "RunSpec")
    yield "places of the option read_seconds", len(modules_that_set(repository, "read_seconds"))
    yield "classes on the way of a local run", len(set(classes_on_the_way(repository)) - {"JobExecutor"})
    yield "constructions of RunResult", len(calls_of(repository, "RunResult"))
    yield "codes of rules", len(codes_of(repository))
    yield "codes with two definitions", sum(len(where) > 1 for where in codes_of(repository).values())
    yield "modules in circles of imports", len(circle(arrows_of(repository)))
    yield f"files of more than {LONGEST_FILE} lines", len(long_files(repository))
    yield "class names that occur twice", sum(len(where) == 2 for where in names.values())
    yield "class names that occur more often", sum(len(where) > 2 for where in names.values())
    yield "public class names that occur again", sum(len(names[n]) > 1 for n in public_names(repository) & set(names))


def fields_of(module: Module, name: str) -> int:
    (found,) = (node for node in module.classes if node.name == name)
    return sum(isinstance(statement, ast.AnnAssign) for statement in found.body)


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    for what, number in counts(root):
        print(f"{number:>7,}  {what}")
