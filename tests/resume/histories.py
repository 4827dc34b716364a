"""Records of trainings, as a test writes them."""

import json
from pathlib import Path
from typing import Any

from t5x_harness.resume.history import History


def state(step: int, *, values: int | None = None, slots: str = "s", other: str = "") -> dict[str, list[Any]]:
    values = step if values is None else values
    return {
        "state/step": [f"step {step}", float(step)],
        "state/param_states/kernel/v": [f"{slots}{values}", 0.0 if slots == "zero" else 1.5],
        "target/kernel": [f"kernel {values}{other}", 2.0 + values],
    }


def life(began: int, ended: int, *, rows: str = "row", **changes: Any) -> list[dict[str, Any]]:
    """Returns the lines of a process that trains from one step to another, in which a state may be changed."""
    lines: list[dict[str, Any]] = [{"began": began, "state": changes.get(f"at_{began}", state(began))}]
    for step in range(began, ended):
        lines.append({"step": step, "rows": [f"{rows} {2 * step}", f"{rows} {2 * step + 1}"]})
        lines.append({"reached": step + 1, "state": changes.get(f"at_{step + 1}", state(step + 1))})
    return lines


def history(tmp_path: Path, name: str, *lives: list[dict[str, Any]], end: str = "") -> History:
    file = tmp_path / f"{name}.jsonl"
    for number, (first, *_) in enumerate(lives, start=1):
        first |= {"life": number, "shard": 0}
    file.write_text("".join(json.dumps(line) + "\n" for lines in lives for line in lines) + end)
    return History.read(file)
