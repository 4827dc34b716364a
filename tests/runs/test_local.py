"""Stages in a run's process, and every end of that process as a failed stage. Needs no JAX."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from local_run import LocalRun

from t5x_harness.spec import Mode, Outcome, RunSpec, Stage, StageResult
from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut, ZygoteFailed

PASSES = {s: StageResult(s, Outcome.PASSED, exercised=1) for s in Stage}


class FakeZygote:
    """Starts a run, and is also the run: its methods answer with a StageResult, artifacts or an error from the test."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.called: list[str] = []
        self.started: list[dict[str, Any]] = []
        self.closed = False
        self._answers = answers

    def start(self, factory: str, argument: Mapping[str, Any], **options: Any) -> Any:
        self.started.append({"factory": factory, "argument": argument, **options})
        if refusal := self._answers.get("start"):
            raise refusal
        return self

    def call(self, method: str, /, *, on_progress: Any = None, **_: Any) -> Any:
        self.called.append(method)
        answer = self._answers.get(method, PASSES.get(method))  # type: ignore[call-overload]
        if on_progress:
            on_progress({"stage": method})
        if isinstance(answer, Exception):
            raise answer
        return answer.to_json() if isinstance(answer, StageResult) else answer

    def close(self) -> None:
        self.closed = True


def raised(message: str, method: str = "open_run", log_tail: str = "", **at: Any) -> RunRaised:
    reply = {"raised": method, "type": "OSError", "message": message, "traceback": "", **at}
    return RunRaised(reply, log_tail=log_tail)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[LocalRun, FakeZygote]]:
    def local(**answers: Any) -> tuple[LocalRun, FakeZygote]:
        zygote = FakeZygote({"artifacts": {}, **answers})
        spec = RunSpec(("a.gin",), mode=Mode.TRAIN, cwd=str(tmp_path), python_path=("tasks",))
        return LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=5.0), zygote

    return local


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (RunDied("killed by SIGKILL (out of memory?)", log_tail="last words"), "RUN07", "killed by SIGKILL"),
        (
            RunCutOff(
                "the emulated Google Cloud, process 7, was killed (out of memory?), in train(); the run was killed",
                log_tail="last words",
            ),
            "RUN07",
            "train cannot go on: the emulated Google Cloud, process 7, was killed (out of memory?), in train()",
        ),
        (RunTimedOut("slow", stack="in data.py", log_tail="last words"), "RUN06", "longer than its limit of 5 s"),
        (raised("no such slice", log_tail="last words"), "RUN08", "train could not be started: no such slice"),
    ],
)
def test_the_end_of_the_process_is_a_failed_stage(make: Any, error: Exception, code: str, says: str) -> None:
    run, _ = make(train=error)
    result = run.stage(Stage.TRAIN)
    assert result.outcome is Outcome.FAILED
    assert result.errors[0].code == code
    assert says in result.errors[0].message
    assert result.log_tail == "last words"
    assert run.stage(Stage.EVAL).outcome is Outcome.NOT_RUN


IN_ORBAX = 'File "/env/orbax/checkpoint/_src/futures/future.py", line 430 in join'
REFUSED = """\
ERROR:absl:_SignalingThread.run() raised an exception: Error executing an HTTP request: HTTP response code 403 with body
\t when uploading gs://b/run/checkpoint_3/
Traceback (most recent call last):
"""


@pytest.mark.parametrize(
    ("stack", "log", "code"),
    [(IN_ORBAX, REFUSED, "CKP34"), (IN_ORBAX, "", "RUN06"), ("in data.py", REFUSED, "RUN06")],
)
def test_a_run_that_waits_for_a_thread_of_orbax_that_has_failed(make: Any, stack: str, log: str, code: str) -> None:
    run, _ = make(train=RunTimedOut("slow", stack=stack))
    run.workspace.mkdir(parents=True)
    (run.workspace / "run.log").write_text(log)
    (finding,) = run.stage(Stage.TRAIN).findings
    assert finding.code == code
    if code == "CKP34":
        assert finding.message == (
            "train waited until its limit of 5 s and was ended: a host could not make a folder of the checkpoint "
            "gs://b/run/checkpoint_3: the bucket refused it"
        )
        assert finding.fix.startswith("give the job's service account the role storage.objectAdmin for the bucket")


def test_a_module_that_ends_the_program_is_found_on_its_line(make: Any) -> None:
    run, _ = make(resolve=raised("module my_tasks called sys.exit(4)", at=("/here/my_tasks.py", 3)))
    (finding,) = run.stage(Stage.RESOLVE).findings
    assert finding.message == "resolve could not be started: module my_tasks called sys.exit(4)"
    assert str(finding.location) == "/here/my_tasks.py:3"
    assert finding.fix.startswith("a module that T5X imports must not end the program")


def test_what_a_stage_raises_after_it_began_names_the_log(make: Any, tmp_path: Path) -> None:
    run, _ = make(train=raised("out of cheese", method="train"))
    (finding,) = run.stage(Stage.TRAIN).findings
    assert (finding.code, finding.message) == ("RUN08", "train stopped: out of cheese")
    assert finding.fix == f"see the end of its log, {tmp_path / 'run/run.log'}"


def test_a_full_disk_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr("t5x_harness.runs.local.shutil.disk_usage", lambda folder: usage)
    error = "[Errno 28] No space left on device"
    run, _ = make(train=raised(error, method="train"))
    run.workspace.mkdir()
    (finding,) = run.stage(Stage.TRAIN).findings
    assert finding.message == f"train stopped: {error}; no space is left on the disk of {run.workspace}"
    assert finding.fix.startswith("make room there, or choose another disk: TMPDIR")


def test_an_error_that_knows_its_fix_says_it(make: Any) -> None:
    run, _ = make(start=ZygoteFailed("no mount", fix="choose --gcs=folder"))
    (error,) = run.stage(Stage.RESOLVE).errors
    assert (error.message, error.fix) == ("resolve could not be started: no mount", "choose --gcs=folder")
    assert run.result().stages[-1].outcome is Outcome.FAILED


def test_a_checkout_that_cannot_be_imported_says_what_to_do(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "t5x", raising=False)
    package = tmp_path / "t5x"
    package.mkdir()
    for name in ("__init__", "partitioning"):
        (package / f"{name}.py").write_text("")
    log = f"File \"{package}/utils.py\", line 35\nModuleNotFoundError: No module named 'airio'"
    run, _ = make(start=ZygoteFailed("Importing t5x failed", log_tail=log))
    assert run.stage(Stage.RESOLVE).errors[0].fix == (
        f"install what {package} imports, or choose the embedded T5X: --t5x-runtime=embedded"
    )


def test_a_process_that_died_in_eval_cannot_infer(make: Any) -> None:
    run, zygote = make(eval=RunDied("gone"))
    run.stage(Stage.EVAL)
    assert run.stage(Stage.INFER).not_checked == ("infer: not run, because eval failed",)
    assert run.result().model_dir.endswith("run/model")
    assert "artifacts" not in zygote.called


def test_the_result_holds_what_was_asked_for_so_far_and_runs_nothing(make: Any) -> None:
    artifacts = {
        "steps": 4,
        "metrics": {"train/loss": {"4": 1.5}},
        "checkpoints": [{"step": 4, "path": "c", "num_bytes": 1}],
        "predictions": [{"prediction": "x"}],
        "operative_config": "A = 1",
        "model_dir": "m",
        "runtime": "embedded",
    }
    run, zygote = make(artifacts=artifacts)
    run.stage(Stage.PLAN)
    result = run.result()
    assert [s.stage for s in result.stages] == [Stage.LINT, Stage.RESOLVE, Stage.PLAN]
    assert zygote.called == ["resolve", "plan", "artifacts"]
    assert result.metrics["train/loss"][4] == 1.5
    assert (result.steps, result.checkpoints[0].step, result.operative_config) == (4, 4, "A = 1")


def test_a_run_that_was_never_asked_starts_nothing(make: Any) -> None:
    run, zygote = make()
    assert run.result().stages == ()
    run.close()
    assert zygote.started == []


def test_a_run_starts_in_its_folder_with_its_modules(make: Any, tmp_path: Path) -> None:
    run, zygote = make()
    with run:
        run.stage(Stage.RESOLVE)
    (start,) = zygote.started
    assert start["cwd"] == str(tmp_path)
    assert start["python_path"] == (str(tmp_path / "tasks"), str(tmp_path))
    assert start["argument"]["spec"]["mode"] == "train"
    assert start["log"] == tmp_path / "run/run.log"
    assert zygote.closed


def test_the_rooms_of_runs_are_imported_without_what_runs_need() -> None:
    """The fast tests are where none of it is installed, and every command and session would wait for it."""
    heavy = {"jax", "tensorflow", "numpy", "seqio", "t5x", "flax", "orbax", "clu", "absl", "etils"}
    program = (
        f"import sys, t5x_harness.runs.local, t5x_harness.runs.pool; print(sorted({heavy!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
