"""Which files become runs: declared ones, globs of the configuration, and what the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.promotion.expression import AOT, SMOKE, selects, selects_only

from .gin_items import DeclaredRuns, GinFile
from .options import usage_errors
from .promotion import PROMOTION
from .session import SESSION, HarnessSession

_PYPROJECT = "pyproject.toml"


def add_declared_runs(config: pytest.Config, session: HarnessSession) -> None:
    """Adds declared runs and globbed gin files to a call of pytest that asks for configs and names no files itself."""
    if not _names_files(config) and _asks_for_configs(config):
        with usage_errors():
            session.settings.check_configured()
        config.args.extend(path for path in map(str, session.settings.configured_files()) if path not in config.args)


def header(config: pytest.Config, session: HarnessSession) -> list[str]:
    """Returns the header's lines: versions, runtime and slice if they are used, and what is left out."""
    paths = [] if _asks_for_configs(config) else session.settings.configured_files()
    if _names_files(config):
        folders = [config.invocation_params.dir / argument for argument in config.args]
        paths = [path for path in paths if any(path.is_relative_to(folder) for folder in folders)]
        paths = [path for path in paths if not _named_on_command_line(path, config)]
    lines = [*([session.settings.header()] if session.expects_runs else []), *session.settings.left_out(paths)]
    if not _names_files(config) and _asks_for_configs(config):
        lines += session.settings.left_open(session.settings.configured_files())
    if session.settings.configuration.given("aot") and not selects(session.expression, AOT):
        lines.append(f"t5x-harness: -m {session.expression!r} leaves the stage {AOT} out; 'or {AOT}' runs it, too")
    return lines


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Returns a collector for a run config or for declared runs; None for every other file."""
    config = parent.config
    session = config.stash[SESSION]
    declares = path.name == _PYPROJECT and path.parent == config.rootpath and bool(session.settings.project.runs)
    if not declares and path.suffix != ".gin":
        return None
    named = _named_on_command_line(path, config)
    if not named and not _asks_for_configs(config):
        return None  # pytest met it in a folder
    if declares:
        return DeclaredRuns.from_parent(parent, path=path)
    # Met in a folder that pytest was called on: what else could be meant?
    wanted = named or _names_files(config) or session.settings.is_configured(path)
    run = session.settings.run_of(path, named=named or session.settings.is_named(path)) if wanted else None
    if run is None:
        return None
    node: GinFile = GinFile.from_parent(parent, path=path)
    node.run = run
    return node


def _asks_for_configs(config: pytest.Config) -> bool:
    """Returns whether ``-m`` selects configs by their marks; by ``tpu`` only if the project names resources."""
    promotion = config.stash[PROMOTION]
    expression = config.stash[SESSION].expression
    marked = any(selects_only(expression, mark) for mark in (SMOKE, AOT))
    return marked or (promotion.active and bool(promotion.settings.defaults))


def _names_files(config: pytest.Config) -> bool:
    return config.args_source is config.ArgsSource.ARGS


def _named_on_command_line(path: Path, config: pytest.Config) -> bool:
    return any(
        (config.invocation_params.dir / arg.partition("::")[0]).resolve() == path.resolve() for arg in config.args
    )
