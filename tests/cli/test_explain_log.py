"""``t5x-harness explain --log`` prints what a job died of, or what it looked at, and says so by its exit status.

A whole explanation is on docs/first-day.md, which tests/docs/test_first_day_page.py holds to what is printed.
"""

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.commands.main import main

LOGS = Path(__file__).parents[1] / "reference" / "logs"


@pytest.fixture(autouse=True)
def wide_terminal_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


def write(*parts: str) -> None:
    Path("job.log").write_text("".join(parts))


def explained(capsys: pytest.CaptureFixture[str], status: int) -> str:
    assert main(["explain", "--log", "job.log"]) == status
    return capsys.readouterr().out


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO((LOGS / "sigterm.log").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["explain", "--log", "-"]) == 0
    assert capsys.readouterr().out.startswith("stdin:3: POD17: host 1 received SIGTERM at 2026-11-27T17:06:29")


def test_the_cause_is_followed_by_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    write("[task 1] Out of memory: Killed process 7 (python3)\n", (LOGS / "host_1_killed.log").read_text())
    lines = explained(capsys, 0).splitlines()
    assert lines[0] == "job.log:1: POD20: the kernel of host 1 killed process 7 (python3), because memory ran out"
    assert lines[-3:] == [
        "The log also has these, which may follow from it:",
        "  job.log:28: POD12: host 1 stopped sending heartbeats",
        "`t5x-harness explain POD20 POD12` explains the codes.",
    ]


def test_a_mistake_that_a_stage_knows_has_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        "Traceback (most recent call last):\n",
        "ValueError: Attempting to register duplicate provider: t\n",
    )
    out = explained(capsys, 0)
    assert out.startswith("job.log:2: SEQ05: t is registered twice\n")
    assert "  fix:        register it once, or give the second one a name of its own\n" in out


def test_a_message_with_which_the_embedded_t5x_ends_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    write("t5x: error: the gin config cannot be read: Unable to open file: a.gin. Searched config paths: ['', '.'].\n")
    assert explained(capsys, 0).startswith("job.log:1: GIN16: the Gin file a.gin is in none of ['', '.']\n")


def test_of_many_hosts_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    write(*(f"[task {host}] Training: step {host}\n" for host in range(12)))
    lines = explained(capsys, 1).splitlines()
    assert lines[1:4] == ["What was done last:", "  host 0: Training: step 0", "  host 1: Training: step 1"]
    assert lines[9:11] == ["  host 7: Training: step 7", "  and 4 more"]


def test_without_a_known_text_the_end_of_the_log_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    write("one\ntwo\n\nthree\nfour\n")
    assert explained(capsys, 1) == (
        "job.log: no known text was found; all 5 lines were read\nThe end of the log:\n  two\n  three\n  four\n"
    )
    write("one\n")
    assert explained(capsys, 1) == "job.log: no known text was found; 1 line was read\nThe end of the log:\n  one\n"
    write("")
    assert explained(capsys, 1) == "job.log: the log is empty\n"
    write("\n\n")
    assert explained(capsys, 1) == "job.log: the log has 2 blank lines\n"


def test_an_unknown_exception_and_what_the_job_survived_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    steps = "".join(f"Training: step {step}\n" for step in range(29))
    write(f"*** SIGTERM received by PID 7\n{steps}Traceback (most recent call last):\nmy.Error: \x1b]0;title\x07no\n")
    assert explained(capsys, 1).splitlines()[:7] == [
        "job.log: no known text was found; all 32 lines were read",
        "The last exception of each host:",
        "  job.log:32: RUN01: a host stopped with my.Error: no",
        "The job went on after these:",
        "  job.log:1: POD17: process 7 of a host received SIGTERM",
        "What was done last:",
        "  this log: Training: step 28",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--log", "none.log"], "--log: there is no file none.log"),
        (["--log", "."], "--log: . is a folder; name a log in it"),
        (["GIN02", "--log", "job.log"], "--log explains a log, and GIN02 a code: give one of them"),
        (["--log"], "argument --log: expected one argument"),
    ],
)
def test_wrong_usage_ends_with_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_compressed_log_is_refused_with_what_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job log.gz").write_bytes(gzip.compress(b"Killed\n"))
    assert main(["explain", "--log", "job log.gz"]) == 2
    message = "--log: job log.gz is compressed; use: zcat 'job log.gz' | t5x-harness explain --log -"
    assert message in capsys.readouterr().err


def test_codes_of_logs_have_pages_with_cause_fix_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "POD12"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(
        "# POD12: a host that died, or no longer answers\n\n## In the log of a job\n\nThe likely cause: "
    )
    assert page.endswith("- `Killed`\n- a process that ends with status 137 or -9\n")
    assert "- `stopped sending heartbeats`\n" in page
    assert main(["explain", "AOT01", "POD01"]) == 0
    assert capsys.readouterr().out.count("## In the log of a job") == 2
    assert main(["explain", "POD"]) == 0
    assert "POD12  log        error    a host that died, or no longer answers\n" in capsys.readouterr().out


def test_explaining_a_log_imports_nothing_heavy() -> None:
    program = (
        "import sys; from t5x_harness.commands.main import main; main(['explain', '--log', sys.argv[1]]);"
        "print([m for m in ('jax', 'numpy', 'tensorflow', 'seqio', 't5x', 'flax') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(LOGS / "sigterm.log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
