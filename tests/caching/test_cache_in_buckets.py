"""A cache in ``gs://`` whose writer was killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.workers import RunDied

CACHE = "--output_cache_dir=gs://my-bucket/cache"


def test_a_killed_writer_is_followed_and_one_elsewhere_is_waited_for(
    cache: Any, folder: Path, google: Mapping[str, str]
) -> None:
    place = Path(google[ROOT_VARIABLE]) / "buckets/my-bucket/cache/dies"
    (folder / "die").touch()
    with pytest.raises(RunDied):
        cache("dies", CACHE, env=google)
    writer = json.loads((place / ".writer.json").read_text())
    (folder / "die").unlink()

    (place / ".writer.json").write_text(json.dumps({**writer, "host": "elsewhere"}))
    status, _, err = cache("dies", CACHE, env=google)
    assert (status, err) == (
        1,
        f"t5x-harness: another process is caching into gs://my-bucket/cache/dies: process "
        f"{writer['pid']} on elsewhere, last seen {writer['seen']}. Wait for it\n",
    )
    (place / ".writer.json").write_text(json.dumps(writer))
    status, out, err = cache("dies", CACHE, env=google)
    assert (status, err) == (0, "")
    assert [line.split()[-1] for line in out.splitlines() if " train " in line] == ["2"]
    left = {path.name.partition(".tfrecord")[0] for path in place.iterdir()}
    files = {f"{kind}.{split}.json" for kind in ("info", "stats") for split in ("train", "validation")}
    assert left == {"COMPLETED", "train", "validation", *files}
