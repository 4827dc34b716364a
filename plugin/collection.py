"""Which files become runs: declared ones, globs of the configuration, and what the command line names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from t5x_harness.spec import Location

from . import marks
from .gin_items import DeclaredRuns, GinFile, NoRun
from .promotion import PROMOTION
from .session import SESSION, HarnessSession

_PYPROJECT = "pyproject.toml"


def add_declared_runs(config: pytest.Config, session: HarnessSession) -> None:
    """Adds declared runs and globbed gin files to a call of pytest that asks for configs and names no files itself."""
    if config.args_source is not config.ArgsSource.ARGS and _asks_for_configs(config):
        config.args.extend(path for path in _configured(config, session) if path not in config.args)


def left_out(config: pytest.Config, session: HarnessSession) -> str | None:
    """How many configured runs this call of pytest leaves out, and what runs them; None if it leaves out none."""
    if _asks_for_configs(config):
        return None
    declared = str(config.rootpath / _PYPROJECT)
    paths = _configured(config, session)
    if config.args_source is config.ArgsSource.ARGS:
        folders = [config.invocation_params.dir / argument for argument in config.args]
        paths = [path for path in paths if any(Path(path).is_relative_to(folder) for folder in folders)]
        paths = [path for path in paths if not _named_on_command_line(Path(path), config)]
    number = sum(len(session.project.runs) if path == declared else 1 for path in paths)
    if not number:
        return None
    runs = "1 configured run" if number == 1 else f"{number} configured runs"
    them = "it" if number == 1 else "them"
    return f"t5x-harness: {runs} left out; -m {marks.SMOKE}, or naming a gin file, runs {them}"


def _configured(config: pytest.Config, session: HarnessSession) -> list[str]:
    """The gin files that globs match, and pyproject.toml if runs are declared in it."""
    if not (config.rootpath / _PYPROJECT).is_file() and not session.options.gin_files:
        return []
    globs = (*session.options.gin_files, *session.project.gin_files)
    found = sorted({str(path) for glob in globs for path in config.rootpath.glob(glob)})
    return [*found, str(config.rootpath / _PYPROJECT)] if session.project.runs else found


def _asks_for_configs(config: pytest.Config) -> bool:
    """Whether ``-m`` selects configs because of their marks; those of ``tpu`` only where the project has resources."""
    promotion = config.stash[PROMOTION]
    smoke = marks.selects_only(config.option.markexpr, marks.SMOKE)
    return smoke or (promotion.active and promotion.names_resources)


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A collector for a run config or for declared runs; None for every other file."""
    if path.suffix == ".gin":
        return _collect_gin(path, parent)
    if path.name == _PYPROJECT and path.parent == parent.config.rootpath:
        return _collect_declared(path, parent)
    return None


def _collect_gin(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    session = parent.config.stash[SESSION]
    named = _named_on_command_line(path, parent.config)
    if not named and not _wanted(path, parent.config, session):
        return None
    from t5x_harness.lint.classify import Kind, classify

    spec = session.spec([str(path)])
    verdict = classify(spec, t5x_parent=session.runtime.location)
    if verdict.kind is Kind.FRAGMENT and not (named and verdict.mode):  # lint has the line of what it leaves open
        return NoRun.of(parent, path, verdict.reason) if named else None
    if verdict.kind is Kind.BROKEN and not named:
        return None  # a fragment, for all that can be seen
    own = {"mode": verdict.mode, "until": session.options.until, **session.golden(path.stem)}
    return GinFile.of(parent, path, session.spec([str(path)], **own), verdict.location)


def _collect_declared(path: Path, parent: pytest.Collector) -> DeclaredRuns | None:
    session = parent.config.stash[SESSION]
    if not session.project.runs:
        return None
    if not (_named_on_command_line(path, parent.config) or _asks_for_configs(parent.config)):
        return None  # pytest met it in a folder
    from t5x_harness.lint.classify import Kind, classify

    runs = []
    for declared in session.project.runs:
        spec = session.spec(**declared.overrides(session.project, session.options.bindings, session.slice_name))
        verdict = classify(spec, t5x_parent=session.runtime.location)
        if verdict.kind is Kind.RUN_CONFIG and spec.mode is None:
            spec = dataclasses.replace(spec, mode=verdict.mode)
        spec = dataclasses.replace(spec, until=session.options.until, **session.golden(declared.name))
        runs.append((declared.name, spec, Location(str(path), declared.line)))
    node: DeclaredRuns = DeclaredRuns.from_parent(parent, path=path)
    node.runs = tuple(runs)
    return node


def _named_on_command_line(path: Path, config: pytest.Config) -> bool:
    return any(
        (config.invocation_params.dir / arg.partition("::")[0]).resolve() == path.resolve() for arg in config.args
    )


def _wanted(path: Path, config: pytest.Config, session: HarnessSession) -> bool:
    """Whether a gin file that pytest met in a folder is to be collected.

    Only where ``-m`` asks for configs: if a configured glob matches it, or if pytest was called on a folder; what else
    could be meant?
    """
    if not _asks_for_configs(config):
        return False
    globs = (*session.options.gin_files, *session.project.gin_files)
    return config.args_source is config.ArgsSource.ARGS or any(path in config.rootpath.glob(glob) for glob in globs)
