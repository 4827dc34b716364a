"""The files that each host of a pod has for itself, such as its log: beside the first host's, with its own number."""

from pathlib import Path

from t5x_harness.spec import Stage

RECORD = Path(Stage.RESUME.value, "reference.jsonl")
"""The file in a run's folder in which its training is recorded, if it is repeated, or has several hosts."""


def of_host(file: Path, host: int) -> Path:
    """Returns the file of one host.

    Args:
      file: the file of the first host, or of a process that is alone.
      host: the number of the host, from 0.
    """
    return file if host == 0 else file.with_suffix(f".host-{host}{file.suffix}")


def of_all_hosts(file: Path) -> list[Path]:
    """Returns the files that there are, in the order of the hosts, given that of the first one."""
    others = file.parent.glob(f"{file.stem}.host-*{file.suffix}")
    return [file, *sorted(others, key=lambda path: int(path.stem.rpartition("-")[2]))]
