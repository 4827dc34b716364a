"""Arrays that are divided among devices are saved in parts and come back in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.embedded("T5X cuts chunks of the older layout otherwise")
def test_a_divided_state_is_saved_and_restored(programs: Any, tmp_path: Path) -> None:
    with programs.start(brief=False, factory="sharded_program:ShardedProgram") as run:
        found = run.call("save_and_restore", folder=str(tmp_path), timeout=240)
    assert found["devices"] == 2
    for layout in ("orbax", "legacy"):
        assert found[layout]["equal"], layout
        assert found[layout]["shards"] == [[8, 2], [8, 2]]
    assert found["legacy"]["files"] == ["0.0", "0.1"]  # each device's part is a chunk of its own
