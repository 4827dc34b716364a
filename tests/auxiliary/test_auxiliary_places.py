"""A train job's folder in a bucket: the checkpoints that count as finished, and conflicts between records."""

from collections.abc import Callable, Mapping

import pytest

from t5x_harness.auxiliary.jobs import AuxiliaryError
from t5x_harness.auxiliary.journal import Journal, Record, State
from t5x_harness.buckets.checkpoints import FinishedCheckpoint, finished_checkpoints
from t5x_harness.buckets.folders import AnyFolder, folder_at

pytest.importorskip("google.cloud.storage")
pytest.importorskip("google_crc32c", reason="needs the extra google")

Tree = Callable[[Mapping[str, str | bytes]], str]


@pytest.fixture
def place(gcs_tree: Tree) -> AnyFolder:
    return folder_at(f"{gcs_tree({'other': 'x'})}/run")


def test_what_is_finished_by_how_it_is_written(gcs_tree: Tree) -> None:
    committed = '{"commit_timestamp_nsecs": 1}'
    address = gcs_tree(
        {
            "run/checkpoint_1/state/x": "",
            "run/checkpoint_2/state/x": "",
            "run/checkpoint_2/commit_success.txt": "",
            "run/checkpoint_3/checkpoint": "",
            "run/checkpoint_4/checkpoint": "",
            "run/checkpoint_4.tmp-1/checkpoint": "",
            "run/checkpoint_5/state/x": "",
            "run/checkpoint_5/_CHECKPOINT_METADATA": committed,
            "run/checkpoint_6/state/x": "",
            "run/checkpoint_6/_CHECKPOINT_METADATA": committed,
            "run/checkpoint_6.orbax-checkpoint-tmp-1/state/x": "",
            "run/checkpoint_7/state/x": "",
            "run/checkpoint_7/_CHECKPOINT_METADATA": "{",
            "run/checkpoint_8/commit_success.txt": "",  # another job had orbax remove the rest
        }
    )
    direct = [FinishedCheckpoint(2, by_orbax=True), FinishedCheckpoint(3, by_orbax=False)]
    place = folder_at(f"{address}/run")
    assert finished_checkpoints(place, place.address) == direct
    mounted = f"{address.replace('gs://', '/gcs/')}/run"
    assert finished_checkpoints(folder_at(mounted), mounted) == [*direct, FinishedCheckpoint(5, by_orbax=True)]


def test_a_record_is_written_by_one_alone(place: AnyFolder) -> None:
    first, second = Journal(place, "eval"), Journal(place, "eval")
    record = Record(10, "numbers", State.STARTING)
    first.create(record)
    with pytest.raises(
        AuxiliaryError, match=r"checkpoint_10/numbers.json was written by another controller, which has"
    ):
        second.create(record)
    third = Journal(place, "eval")
    assert third.records == {(10, "numbers"): record}
    third.update(Record(10, "numbers", State.RUNNING))
    with pytest.raises(AuxiliaryError, match="was written by another controller"):
        first.update(Record(10, "numbers", State.FAILED))
