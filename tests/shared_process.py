"""Runs that share a process, one after another. Each of them finds it in its initial state.

With a forked process for each run, each would have to start TensorFlow and JAX and trace the same small model.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use
from local_run import LocalRun
from module_places import places_of

from t5x_harness.findings.rule import FILES
from t5x_harness.spec import RunResult, RunSettings, RunSpec, Stage
from t5x_harness.system.closing import Closing
from t5x_harness.workers.errors import RunDied, RunTimedOut
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.run import Environment, RunProcess
from t5x_harness.workers.zygote import Zygote


@pytest.fixture(scope="session")
def shared_processes(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProcesses]:
    """Starts runs of resolve and plan, several of them in one process."""
    with SharedProcesses(zygote, tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture
def run_until(shared_processes: SharedProcesses, zygote: Zygote, tmp_path: Path) -> Callable[..., RunResult]:
    """Returns a function that writes a config and its files to ``tmp_path``, and runs it up to a stage.

    With ``own_process``, nothing that the config or its modules do affects other runs.
    """

    def run(
        stage: Stage,
        gin: str,
        files: Mapping[str, str] = FILES,
        *,
        slice: str = "v3-8",
        own_process: bool = False,
        env: Environment | None = None,
        **settings: Any,
    ) -> RunResult:
        for name, text in {**files, "run.gin": gin}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",),
            slice=slice,
            runtime=t5x_in_use.name,
            python_path=(str(tmp_path),),
            cwd=str(tmp_path),
            settings=RunSettings(**settings),
        )
        processes = zygote if own_process or stage not in (Stage.RESOLVE, Stage.PLAN) else shared_processes
        with LocalRun(spec, zygote=processes, workspace=tmp_path / "work", timeout=300, env=env) as running:
            running.stage(stage)
            return running.result()

    return run


class SharedProcesses(Closing):
    """A context manager that replaces a :class:`Zygote`, with one process for each slice.

    A run with its own variables gets its own process.
    """

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self._folder = folder
        self._hosts: dict[str, RunProcess] = {}

    def start(
        self,
        factory: str,
        argument: Mapping[str, Any],
        *,
        log: Path,
        cwd: Path | str = ".",
        env: Environment | None = None,
        python_path: Sequence[str] = (),
    ) -> RunProcess:
        """Starts a run; see :meth:`Zygote.start`."""
        if env:
            return self._zygote.start(factory, argument, log=log, cwd=cwd, env=env, python_path=python_path)
        slice_name = str(argument["spec"].get("slice"))
        if slice_name not in self._hosts:
            self._hosts[slice_name] = self._zygote.start(
                "shared_process:open_host",
                {},
                log=self._folder / f"{slice_name}.log",
                cwd=self._folder,
                python_path=(str(Path(__file__).parent),),
            )
        start = {"factory": factory, "argument": dict(argument), "cwd": str(cwd), "python_path": list(python_path)}
        return _SharedRun(self._hosts[slice_name], start, log, on_end=lambda: self._hosts.pop(slice_name).close())

    def close(self) -> None:
        """Ends the processes."""
        for host in self._hosts.values():
            host.close()


class _SharedRun(RunProcess):
    """A run in a shared process, as its caller sees it."""

    def __init__(self, host: RunProcess, start: Mapping[str, Any], log: Path, *, on_end: Callable[[], None]) -> None:
        self.pid = host.pid
        self.log = log
        self._host = host
        self._start = start
        self._on_end = on_end
        self._is_open = False

    def call(self, method: str, /, *, timeout: float | None = None, on_progress: Any = None, **kwargs: Any) -> Any:
        """Calls a method of the run's object, which the first call creates."""
        if not self._is_open:
            self._is_open = True
            self._host.call("begin", start=dict(self._start))
        try:
            return self._host.call("call_run", timeout=timeout, name=method, arguments=kwargs)
        except (RunDied, RunTimedOut):  # the next run gets another process
            self._is_open = False
            self._on_end()
            raise

    def close(self) -> None:
        """Ends the run and restores the process to its state before the run."""
        if self._is_open:
            self._is_open = False
            self._host.call("end")


def open_host(argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> Host:
    """Makes the object whose runs share this process."""
    return Host()


class Host:
    """The runs of this process."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._run: RunProcess | None = None

    def begin(self, start: Mapping[str, Any]) -> None:
        """Starts a run after ending the previous one."""
        self._open.close()
        self._open.enter_context(_restored(start["cwd"]))
        self._run = InProcess().start(
            start["factory"], start["argument"], log=Path("-"), cwd=start["cwd"], python_path=start["python_path"]
        )

    def call_run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Calls a method of the run's object."""
        assert self._run is not None
        return self._run.call(name, **arguments)

    def end(self) -> None:
        """Ends the run."""
        self._run = None
        self._open.close()


@contextlib.contextmanager
def _restored(folder: str) -> Iterator[None]:
    """Undoes what a run does to this process: the modules of its folder, and everything that modules register."""
    import gin
    import seqio
    from tensorflow_datasets.core import registered

    tables: list[MutableMapping[Any, Any]] = [
        seqio.TaskRegistry._REGISTRY,
        seqio.MixtureRegistry._REGISTRY,
        registered._DATASET_REGISTRY,
        registered._ABSTRACT_DATASET_REGISTRY,
        gin.config._INVERSE_REGISTRY,
    ]
    before = [dict(table) for table in tables]
    modules = set(sys.modules)
    selectors, caches = set(dict(gin.config._REGISTRY.items())), list(seqio.get_global_cache_dirs())
    importlib.invalidate_caches()
    try:
        yield
    finally:
        gin.clear_config(clear_constants=True)
        for selector in set(dict(gin.config._REGISTRY.items())) - selectors:
            gin.config._REGISTRY.pop(selector)
        for table, content in zip(tables, before, strict=True):
            table.clear()
            table.update(content)
        seqio.set_global_cache_dirs(caches)
        for name in set(sys.modules) - modules:
            if any(place.is_relative_to(folder) for place in places_of(sys.modules[name])):
                del sys.modules[name]
