"""Checks of the T5X in use: its interface against the record, and the private library names that the harness uses."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t5x_harness.doctor.check import Defect, Environment, Looked, check, error, warning
from t5x_harness.runtime.import_hooks import EMBEDDED_PATH
from t5x_harness.spec import Severity
from t5x_harness.upstream.names import LIBRARIES
from t5x_harness.upstream.t5x import CHANGED, T5XLacks


@check(
    "ENV05",
    "placeholder t5x from PyPI",
    why="PyPI's `t5x 0.0.0` is a placeholder and brings no module: `pip install t5x` does not install T5X.",
)
def placeholder(environment: Environment) -> Looked:
    """Looks for a distribution named t5x that has no package t5x."""
    findings = [
        error(
            f"{found} in {found.folder} is PyPI's placeholder and holds no T5X",
            "python -m pip uninstall -y t5x; and for T5X itself:"
            " python -m pip install 't5x @ git+https://github.com/google-research/t5x'",
        )
        for found in environment.placeholders
    ]
    return "looked for by its contents", findings


@check(
    "ENV06",
    "T5X in use",
    why=(
        "Runs import an installed T5X where there is one, and the embedded T5X elsewhere. This line says which it is "
        "and where it is."
    ),
)
def runtime_in_use(environment: Environment) -> Looked:
    """Reports which T5X the runs import, and warns of a folder that has only its name."""
    findings = [
        warning(
            f"{shadow} only has T5X's name and is first on the import path: runs here pass it over, but python -m "
            "t5x.train fails there, as does a job with it in its working folder",
            "rename it, or start T5X in another folder",
        )
        for shadow in filter(None, [environment.shadow])
    ]
    return f"{environment.runtime}, in {environment.runtime.location}", findings


@check(
    "ENV11",
    "private names in use",
    why=(
        "For what a library offers no public way, the harness uses names that it may take away in any release, each in "
        "one function of t5x_harness/upstream/. Where one is gone, that function fails, or a run takes longer. "
        "The files of the installed release are searched; nothing is imported."
    ),
)
def private_names(environment: Environment) -> Looked:
    """Looks for each name in the files of the library that it belongs to."""
    present: dict[str, None] = {}
    found = every = 0
    findings: list[Defect] = []
    for library in LIBRARIES:
        installed = environment.by_name.get(library.name)
        missing = library.missing(installed.folder) if installed else None
        if installed is None or missing is None:
            continue
        present[str(installed)] = None
        found, every = found + library.count - len(missing), every + library.count
        if missing:
            bounds = environment.recorded_requirement(library.name)
            version = f"{library.name}{bounds.specifier if bounds else f'<{installed.version}'}"
            findings.append(
                warning(
                    f"{installed} has no {', '.join(missing)}: what the harness does with it may fail, or take longer",
                    f"python -m pip install '{version}'",
                )
            )
    summary = f"{found} of {every} are there: {', '.join(present)}" if present else "no library with any is there"
    return summary, findings


_RECORDED = Path(EMBEDDED_PATH, "t5x")
_SHOWN = 12

Parameters = Mapping[str, bool]
"""The parameters of a function by name, each with whether it has a default."""


@check(
    "ENV12",
    "interface of T5X",
    why=(
        "The harness knows T5X by its commit cc342d4 of 2026-04-21, whose interface the embedded T5X has. A release or "
        "a fork may differ: a config that binds what is gone fails there, and what the harness changes in T5X (the "
        "mesh, restoring) has to be there. The sources are read; nothing is imported."
    ),
)
def interface(environment: Environment) -> Looked:
    """Compares the sources of both versions of T5X, module by module."""
    runtime = environment.runtime
    if runtime.kind == "embedded":
        return "the embedded T5X has the recorded interface", []
    if not Path(runtime.location).is_dir():
        return f"not compared: the sources in {runtime.location} cannot be read", []
    compared = 0
    differences: list[str] = []
    for file in sorted(_RECORDED.rglob("*.py")):
        relative = file.relative_to(_RECORDED)
        if relative.stem.startswith("_") or not (recorded := _definitions(file)):
            continue
        compared += len(recorded)
        differences += _differences(
            Path(runtime.location, relative), ".".join(relative.with_suffix("").parts), recorded
        )
    findings = [*_lacking(Path(runtime.location))]
    if differences:
        more = f", and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        findings.append(
            Defect(
                Severity.NOTE,
                f"{runtime} differs from the recorded T5X: {'; '.join(differences[:_SHOWN])}{more}",
                "nothing, where it is meant to; lint knows names and parameters as recorded",
            )
        )
    same = compared - len(differences)
    return f"{same} of {compared} functions and classes are as recorded", findings


def _lacking(folder: Path) -> Iterator[Defect]:
    for module, names in CHANGED.items():
        there = _names(folder.joinpath(*module.split(".")[1:]).with_suffix(".py"))
        for name in names:
            if name not in there:
                message = f"the T5X in {folder} has no {module}.{name}, which the harness changes: runs cannot start"
                yield Defect(Severity.ERROR, message, T5XLacks.FIX)


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _names(file: Path) -> set[str]:
    """Returns the names that a module's top level defines."""
    found: set[str] = set()
    for node in _tree(file).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def _definitions(file: Path) -> dict[str, Parameters]:
    """Returns the public functions, methods and classes of a module by name; a class with its parameters."""
    found: dict[str, Parameters] = {}
    for node in _public(_tree(file).body):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _parameters(node)
        else:
            methods = {method.name: method for method in _public(node.body) if isinstance(method, ast.FunctionDef)}
            found |= {f"{node.name}.{name}": _parameters(method) for name, method in methods.items()}
            found[node.name] = _fields(node)
    return found


def _public(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def _parameters(function: ast.FunctionDef) -> Parameters:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    arguments = zip([*positional, *given.kwonlyargs], defaults, strict=True)
    return {argument.arg: default is not None for argument, default in arguments}


def _fields(class_: ast.ClassDef) -> Parameters:
    """Returns the parameters that make a class: those of its ``__init__``, or its annotated fields."""
    for node in class_.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return _parameters(node)
    return {
        node.target.id: node.value is not None
        for node in class_.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and "ClassVar" not in ast.dump(node)
    }


def _differences(file: Path, module: str, recorded: Mapping[str, Parameters]) -> Iterator[str]:
    if not file.is_file():
        yield f"it has no module {module}"
        return
    here, names = _definitions(file), _names(file)
    for name, parameters in recorded.items():
        owner, _, method = name.partition(".")
        if owner not in names:
            if not method:
                yield f"{module}.{name} is not there"
        elif name in here and (said := _changed(parameters, here[name], is_class=name[0].isupper() and not method)):
            yield f"{module}.{name} {said}"


def _changed(recorded: Parameters, here: Parameters, *, is_class: bool) -> str:
    """Describes changed parameters. New required ones count only for functions, because a class may inherit them."""
    gone = [name for name in recorded if name not in here and not name.startswith("_")]
    new = [name for name, has_default in here.items() if name not in recorded and not has_default and not is_class]
    said = [f"takes no {', '.join(gone)}"] if gone else []
    return " and ".join([*said, f"requires {', '.join(new)}"] if new else said)
