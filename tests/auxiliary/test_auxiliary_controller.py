"""``t5x-harness auxiliary`` starts one job for each checkpoint and mixture, even if processes are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from train_desk import Desk, killed_in, until

from t5x_harness.auxiliary.journal import Journal, Record, State
from t5x_harness.buckets.folders import LocalFolder


def test_each_checkpoint_has_a_job_for_each_mixture(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(30, 9, 20)
    (desk.model / "checkpoint_31.tmp-1").mkdir()
    (desk.model / "checkpoint_32").mkdir()  # begun, and empty
    assert desk.run(mixtures="numbers,letters") == 0
    done = [(call["CHECKPOINT_PATH"], call["MIXTURE_OR_TASK_NAME"], call["TRAIN_STEPS"]) for call in desk.calls]
    assert done == [
        (f"{desk.model}/checkpoint_{step}", mixture, str(step))
        for step in (9, 20, 30)
        for mixture in ("numbers", "letters")
    ]
    assert all(call["EVAL_OUTPUT_DIR"] == call["MODEL_DIR"] == str(desk.model) for call in desk.calls)
    assert all(call["files"] == ["eval.gin"] for call in desk.calls)
    shown, said = capsys.readouterr()
    assert f"{desk.model}, eval: 6 succeeded; newest checkpoint: checkpoint_30 of 30 steps\n" in shown
    assert "checkpoint_9, letters succeeded\n" in said
    assert desk.run(mixtures="numbers,letters") == 0
    assert len(desk.calls) == 6  # nothing is repeated


def test_fine_tuning_goes_on_from_each_checkpoint_in_a_folder_of_its_own(desk: Desk) -> None:
    desk.checkpoint(10, 30)
    assert desk.run("--auxiliary_job_gin_file=finetune.gin", "--final_auxiliary_job_steps=5") == 0
    assert [call["TRAIN_STEPS"] for call in desk.calls] == ["15", "35"]
    folders = [call["MODEL_DIR"] for call in desk.calls]
    assert folders == [f"{desk.model}/auxiliary/finetune/numbers/checkpoint_{step}" for step in (10, 30)]


def test_one_that_falls_behind_may_pass_over_all_but_the_newest(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(10, 20, 30)
    assert desk.run("--skip_to_newest") == 0
    assert [call["TRAIN_STEPS"] for call in desk.calls] == ["30"]
    shown, said = capsys.readouterr()
    assert "checkpoint_10, numbers is skipped: checkpoint_30 was there before its turn came\n" in said
    assert "1 succeeded, 2 skipped" in shown


def test_a_job_that_fails_shows_its_log_and_others_go_on(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(10, 30)
    desk.jobs_do("fail")
    assert desk.run() == 1
    said = capsys.readouterr().err
    assert "checkpoint_10, numbers failed: exit status 3; the end of " in said
    assert len(desk.calls) == 2
    desk.jobs_do("")
    assert desk.run() == 1  # the failure is already known
    assert len(desk.calls) == 2
    assert desk.run("--retry_failed") == 0
    assert len(desk.calls) == 4


def test_failed_jobs_that_are_retried_take_turns(desk: Desk) -> None:
    """They also take turns with other jobs of their mixture, and do not start if their checkpoints were removed."""
    desk.checkpoint(10, 20, 30, by_orbax=True)
    desk.jobs_do("fail")
    keep = "--gin.utils.SaveCheckpointConfig.keep=1"
    assert desk.run(keep, mixtures="numbers,letters") == 1
    shutil.rmtree(desk.model / "checkpoint_10")
    desk.jobs_do("wait")
    again = desk.start(keep, "--at_once=2", "--retry_failed", mixtures="numbers,letters")
    until(lambda: len(desk.calls) == 6 + 2, "two jobs")
    until(lambda: [record.state for record in _records(desk)].count(State.RUNNING) == 2, "their records")
    assert {(call["TRAIN_STEPS"], call["MIXTURE_OR_TASK_NAME"]) for call in desk.calls[6:]} == {
        ("20", "numbers"),
        ("20", "letters"),
    }
    assert all("/auxiliary/eval/held/" in call["CHECKPOINT_PATH"] for call in desk.calls[6:])
    desk.jobs_do("")
    shown, said = again.communicate()
    assert "2 failed" in shown
    assert "4 succeeded" in shown
    assert len(desk.calls) == 6 + 4
    assert "checkpoint_10, numbers could not be started: the train job has removed checkpoint_10\n" in said


@pytest.mark.parametrize("how", ["die", "out of memory"])
def test_a_job_that_was_killed_is_started_again(desk: Desk, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(30)
    desk.jobs_do(how)
    assert desk.run() == 0
    assert len(desk.calls) == 2
    assert "checkpoint_30, numbers was killed, and is started again\n" in capsys.readouterr().err


def test_jobs_outlive_their_controller_and_the_next_one_neither_repeats_nor_skips(desk: Desk) -> None:
    desk.checkpoint(10, 20, 30)
    desk.jobs_do("wait")
    first = desk.start()
    until(lambda: len(desk.calls) == 1, "the first job")
    first.kill()
    first.communicate()
    second = desk.start()
    until(lambda: "controller.json" in os.listdir(desk.model / "auxiliary" / "eval"), "the second controller")
    desk.jobs_do("")
    _, said = second.communicate()
    assert second.returncode == 0, said
    assert [call["TRAIN_STEPS"] for call in desk.calls] == ["10", "20", "30"]


@pytest.mark.parametrize("method", ["processes.LocalJobs.start", "journal.Journal.update"])
def test_one_that_dies_around_a_start_leaves_no_doubt(
    desk: Desk, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it dies before the start, the next one starts the job; if before recording it, the next one finds it."""
    desk.checkpoint(30)
    with killed_in(method, monkeypatch):
        desk.run()
    assert desk.run() == 0
    assert len(desk.calls) == 1
    found = "checkpoint_30, numbers is found again: " in capsys.readouterr().err
    assert found == (method == "journal.Journal.update")


def test_a_second_controller_is_shown_who_works(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(30)
    desk.jobs_do("wait")
    first = desk.start()
    until(lambda: desk.calls, "the first job")
    assert desk.run() == 1
    said = capsys.readouterr().err
    assert f"{desk.model}: another controller has these auxiliary jobs: process {first.pid} on " in said
    assert "give --name=NAME for jobs of their own\n" in said
    desk.jobs_do("")
    first.communicate()
    assert first.returncode == 0
    assert len(desk.calls) == 1


def test_two_started_at_once_do_the_work_of_one(desk: Desk) -> None:
    desk.checkpoint(10, 30)
    both = [desk.start(), desk.start()]
    ends = sorted((one.communicate()[1], one.returncode) for one in both)
    assert len(desk.calls) == 2, ends
    assert 0 in [status for _, status in ends]


def test_ctrl_c_says_what_goes_on(desk: Desk) -> None:
    desk.checkpoint(30)
    desk.jobs_do("wait")
    train = [sys.executable, "-c", "import time; time.sleep(600)"]
    controller = desk.start("--", *train)
    until(lambda: desk.calls, "the job")
    until(lambda: _records(desk) and _records(desk)[0].job, "its record")
    controller.send_signal(signal.SIGINT)
    _, said = controller.communicate()
    assert controller.returncode == 130
    lines = [line.removeprefix("t5x-harness auxiliary: ") for line in said.splitlines()]
    (going,) = [line for line in lines if line.startswith("interrupted; the train job goes on: ")]
    assert f"interrupted; checkpoint_30, numbers goes on: {_records(desk)[0].job}" in lines
    assert "the same command again goes on from here" in lines
    desk.jobs_do("")
    pid = int((Path(going.partition(" on: ")[2].partition(":")[2]) / "pid").read_text())
    os.killpg(pid, signal.SIGKILL)


def test_a_train_job_that_is_started_here_ends_the_waiting(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """It fails before the step that its config names; the checkpoint that it wrote is evaluated."""
    write = "import os; os.makedirs('model/checkpoint_10'); open('model/checkpoint_10/checkpoint', 'w'); raise OSError"
    assert desk.run("--", sys.executable, "-c", write) == 1
    assert [call["TRAIN_STEPS"] for call in desk.calls] == ["10"]
    shown = capsys.readouterr().out
    assert "eval: 1 succeeded; newest checkpoint: checkpoint_10 of 30 steps\n" in shown
    assert "the train job failed: exit status 1; the end of " in shown


def test_status_for_people_and_programs(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(10)
    assert desk.run("--status") == 0
    assert capsys.readouterr().out == f"{desk.model}, eval: no jobs; newest checkpoint: checkpoint_10 of 30 steps\n"
    assert desk.run("--once") == 0
    capsys.readouterr()
    assert desk.run("--status", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    (job,) = values["jobs"]
    assert (job["step"], job["mixture"], job["state"]) == (10, "numbers", "succeeded")
    assert (values["last_step"], values["succeeded"]) == (30, True)


def test_a_record_that_is_none_is_named(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(30)
    path = desk.model / "auxiliary" / "eval" / "journal" / "checkpoint_30" / "numbers.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert desk.run() == 1
    assert f"{path} is not a record of an auxiliary job: " in capsys.readouterr().err


def test_low_priority_is_nice(desk: Desk) -> None:
    desk.checkpoint(30)
    desk.jobs_do("wait")
    controller = desk.start("--priority=low")
    until(lambda: desk.calls, "the job")
    (notes,) = desk.notes.glob("*.json")
    pid = notes.stem.partition("-")[2]
    shown = subprocess.run(["ps", "-o", "ni=", "-p", pid], capture_output=True, text=True, check=True).stdout
    desk.jobs_do("")
    controller.communicate()
    assert int(shown) == min(os.nice(0) + 10, 19)


class TestHolds:
    """With ``keep``, the train job removes checkpoints, but not those that jobs need."""

    KEEP = "--gin.utils.SaveCheckpointConfig.keep=1"

    def test_a_mark_that_t5x_leaves_alone(self, desk: Desk) -> None:
        held = desk.checkpoint(10)
        desk.jobs_do("wait")
        controller = desk.start(self.KEEP)
        until(lambda: desk.calls, "the job")
        assert (held / "PINNED").read_text() == "held by t5x-harness for auxiliary jobs\n"
        desk.checkpoint(30)
        until((desk.model / "checkpoint_30" / "PINNED").exists, "the next one, while it waits")
        desk.jobs_do("")
        _, said = controller.communicate()
        assert controller.returncode == 0, said
        assert not (held / "PINNED").exists()
        assert [call["there"] for call in desk.calls] == [True, True]

    def test_a_mark_of_somebody_else_stays(self, desk: Desk) -> None:
        (desk.checkpoint(30) / "PINNED").write_text("mine")
        assert desk.run(self.KEEP) == 0
        assert (desk.model / "checkpoint_30" / "PINNED").read_text() == "mine"

    def test_a_copy_where_orbax_removes(self, desk: Desk) -> None:
        original = desk.checkpoint(30, by_orbax=True)
        desk.jobs_do("wait")
        controller = desk.start(self.KEEP, mixtures="numbers,letters")
        until(lambda: desk.calls, "the first job")
        shutil.rmtree(original)
        desk.jobs_do("")
        _, said = controller.communicate()
        assert controller.returncode == 0, said
        assert [call["there"] for call in desk.calls] == [True, True]
        assert desk.calls[0]["CHECKPOINT_PATH"] == f"{desk.model}/auxiliary/eval/held/30/checkpoint_30"
        assert os.listdir(desk.model / "auxiliary" / "eval" / "held") == []

    def test_two_requests_hold_one_checkpoint_until_the_last_has_ended(self, desk: Desk) -> None:
        held = desk.checkpoint(30)
        desk.jobs_do("wait")
        first = desk.start(self.KEEP)
        until(lambda: len(desk.calls) == 1, "the first one's job")
        desk.jobs_do("")
        second_holds = desk.model / "auxiliary" / "holders" / "checkpoint_30" / "other"
        second_holds.write_text("")  # another request does this while its jobs run
        first.communicate()
        assert (held / "PINNED").exists()
        assert desk.run(self.KEEP, "--name=other") == 0
        assert not (held / "PINNED").exists()

    def test_one_that_is_gone_before_it_could_be_held_is_skipped(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        desk.checkpoint(10, 30, by_orbax=True)
        copy = LocalFolder.copy

        def removing(place: LocalFolder, name: str, to: str) -> bool:
            if name == "checkpoint_10":
                shutil.rmtree(place.folder / name / "state")  # as if the train job did this meanwhile
            return copy(place, name, to)

        monkeypatch.setattr(LocalFolder, "copy", removing)
        assert desk.run(self.KEEP) == 0
        assert [call["TRAIN_STEPS"] for call in desk.calls] == ["30"]
        said = capsys.readouterr().err
        assert "checkpoint_10, numbers is skipped: the train job removed it before it could be held\n" in said

    def test_nothing_is_held_where_nothing_is_removed(self, desk: Desk) -> None:
        desk.checkpoint(30, by_orbax=True)
        assert desk.run() == 0
        assert desk.calls[0]["CHECKPOINT_PATH"] == f"{desk.model}/checkpoint_30"


def _records(desk: Desk) -> list[Record]:
    return list(Journal(LocalFolder(desk.model), "eval").records.values())
