"""One function decides whether a path is remote, for data, vocabularies and checkpoints."""

from pathlib import Path

import pytest

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.buckets.reach import is_not_asked, is_replaced
from t5x_harness.spec import StandInPolicy
from t5x_harness.variables import ROOT_VARIABLE, SOURCE_VARIABLE


@pytest.mark.parametrize("path", ["/gcs/my-bucket/v.model", "/cns/cell/home/v.model", "/bigstore/my-bucket/v.model"])
def test_a_mount_that_is_not_here_gets_stand_ins(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    assert (is_remote(path), is_not_asked(path)) == (True, True)
    assert [policy for policy in StandInPolicy if is_replaced(path, policy)] == [
        StandInPolicy.MISSING,
        StandInPolicy.ALL,
    ]


@pytest.mark.parametrize("path", ["/data/v.model", "v.model", "/gcsfuse/v.model"])
def test_a_path_of_this_machine_gets_none(path: str) -> None:
    assert (is_remote(path), is_not_asked(path)) == (False, False)
    assert not any(is_replaced(path, policy) for policy in StandInPolicy)


def test_a_bucket_of_the_users_own_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "given").mkdir(parents=True)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "root"))
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path / "mine"))
    assert (is_not_asked("gs://given/v.model"), is_not_asked("gs://other/v.model")) == (False, True)
    assert not is_replaced("gs://given/v.model", StandInPolicy.MISSING)
    assert is_replaced("gs://other/v.model", StandInPolicy.MISSING)
