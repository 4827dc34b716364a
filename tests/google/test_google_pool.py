"""The emulated Google Clouds of a session's runs: fresh buckets for each run, copied from the user's folder."""

import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.buckets.emulated import Store, store
from t5x_harness.commands.shells import root_of
from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.pool import GooglePool, copy_buckets
from t5x_harness.google.server.settings import ServerError
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.settings.forms import buckets
from t5x_harness.settings.project import load_project
from t5x_harness.variables import ROOT_VARIABLE, STANDINS_VARIABLE


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    (folder / "my-bucket" / "data").mkdir(parents=True)
    (folder / "my-bucket" / "data" / "rows.tsv").write_text("one\ttwo\n")
    return folder


@pytest.fixture(scope="module")
def google(source: Path) -> Iterator[GooglePool]:
    made = GooglePool(source)
    yield made
    made.close()


def names(environment: Mapping[str, str], bucket: str) -> str:
    """Returns the names that a client lists, or its error."""
    url = f"{environment['STORAGE_EMULATOR_HOST']}/storage/v1/b/{bucket}/o?fields=items/name"
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.code)


def test_each_run_finds_the_users_buckets_and_nothing_of_the_runs_before(google: GooglePool, source: Path) -> None:
    first = google.enter()
    root = Path(first[ROOT_VARIABLE])
    (root / "buckets" / "my-bucket" / "data" / "rows.tsv").write_text("changed")
    (root / "buckets" / "other-bucket").mkdir()
    (root / "buckets" / "other-bucket" / "left").touch()
    (root / "buckets" / "note.txt").write_text("of /gcs/note.txt")
    (root / "buckets" / "link").symlink_to(root / "buckets" / "my-bucket")
    upload = f"{first['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a//b"
    request = urllib.request.Request(upload, b"x", {"Content-Type": "text/plain"}, method="POST")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request
    ).close()  # stored outside the bucket's folder
    assert "a//b" in names(first, "my-bucket")
    google.leave(first)
    second = google.enter()
    assert second == first  # the same server
    assert [path.name for path in (root / "buckets").iterdir()] == ["my-bucket"]
    assert (root / "buckets" / "my-bucket" / "data" / "rows.tsv").read_text() == "one\ttwo\n"
    assert "data/rows.tsv" in names(second, "my-bucket")
    assert "a//b" not in names(second, "my-bucket")
    assert names(second, "other-bucket") == "404"
    assert (source / "my-bucket" / "data" / "rows.tsv").read_text() == "one\ttwo\n"
    google.leave(second)


def test_buckets_that_the_user_protects_can_be_written_to_in_a_run(tmp_path: Path) -> None:
    file = tmp_path / "buckets" / "mine" / "model" / "checkpoint"
    file.parent.mkdir(parents=True)
    file.write_text("kept")
    file.chmod(0o444)
    file.parent.chmod(0o555)
    copy_buckets(tmp_path / "buckets", tmp_path / "copy")
    copied = tmp_path / "copy" / "mine" / "model" / "checkpoint"
    assert (copied.read_text(), os.stat(copied).st_mode & 0o777) == ("kept", 0o644)
    assert os.stat(copied.parent).st_mode & 0o777 == 0o755
    assert (os.stat(file).st_mode & 0o777, os.stat(file.parent).st_mode & 0o777) == (0o444, 0o555)
    file.parent.chmod(0o755)  # so that pytest can remove it


def test_a_run_that_begins_while_another_goes_on_has_buckets_of_its_own(google: GooglePool) -> None:
    first = google.enter()
    mine = Path(first[ROOT_VARIABLE]) / "buckets" / "my-bucket" / "mine"
    mine.touch()
    second = google.enter()
    assert second[ROOT_VARIABLE] != first[ROOT_VARIABLE]
    assert "data/rows.tsv" in names(second, "my-bucket")
    assert "mine" not in names(second, "my-bucket")
    google.leave(second)
    assert "mine" in names(first, "my-bucket")
    assert google.enter() == second  # the existing server is used again
    google.leave(second)
    google.leave(first)
    google.leave(first)
    assert google.enter() == first
    assert not mine.exists()
    google.leave(first)


def test_what_is_not_an_object_in_the_users_folder_is_passed_over(tmp_path: Path) -> None:
    data = tmp_path / "my-bucket" / "data"
    (data / "empty").mkdir(parents=True)
    (data / "file").write_text("x")
    (data / "link").symlink_to("file")
    (data / "linked").symlink_to("empty")
    (data / "empty" / "back").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "forth").symlink_to(data / "empty")
    (data / "dangling").symlink_to("nowhere")
    (data / "itself").symlink_to("itself")
    (data / "loop").symlink_to(tmp_path / "my-bucket")
    os.mkfifo(data / "pipe")
    google = GooglePool(tmp_path)
    try:
        copied = Path(google.enter()[ROOT_VARIABLE]) / "buckets" / "my-bucket" / "data"
        assert sorted(path.name for path in copied.iterdir()) == ["empty", "file", "link", "linked"]
        assert (copied / "link").read_text() == "x"
    finally:
        google.close()


@pytest.mark.parametrize("moment", ["while a run has it", "between two runs", "before the first run"])
def test_a_killed_server_is_the_loss_of_its_run_alone(moment: str) -> None:
    made = GooglePool()
    try:
        if moment == "before the first run":
            made.warm()
            killed = made._servers[0]
            killed._started.result()
        else:
            first = made.enter()
            killed = made._taken[first[ROOT_VARIABLE]]
        ends = killed.session.endpoints
        if moment == "between two runs":
            made.leave(first)
        os.kill(ends.pid, signal.SIGKILL)
        assert select.select([killed.session], [], [], 60)[0]
        if moment == "while a run has it":
            assert made.server_of(first).how_it_ended() == (
                f"the emulated Google Cloud, process {ends.pid}, was killed (out of memory?)"
            )
            made.leave(first)
            assert not ends.folder.exists()
        second = made.enter()
        assert not ends.folder.exists()  # keys, token and objects
        assert second[ROOT_VARIABLE] != str(ends.root)
        assert made.server_of(second).how_it_ended() == ""
        assert names(second, "other-bucket") == "404"
    finally:
        made.close()


def test_what_a_server_said_in_a_run_is_that_runs_alone(google: GooglePool) -> None:
    first = google.enter()
    assert google.said(first) == ""
    for _ in range(3):
        assert names(first, "acme-nlp") == "404"
    assert google.said(first).startswith("t5x-harness: there is no bucket 'acme-nlp'")
    google.leave(first)
    assert google.said(first) == ""
    second = google.enter()
    assert google.said(second) == ""
    google.leave(second)


def test_a_server_that_refuses_to_begin_anew_is_replaced(google: GooglePool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: FakeGcs) -> None:
        raise ValueError("DELETE /storage/v1/b/x: 500")

    first = google.enter()
    google.leave(first)
    with monkeypatch.context() as patch:
        patch.setattr(FakeGcs, "remove_buckets", refuse)
        second = google.enter()
    assert second[ROOT_VARIABLE] != first[ROOT_VARIABLE]
    assert not Path(first[ROOT_VARIABLE]).exists()
    google.leave(second)


@pytest.mark.usefixtures("source")
def test_a_run_knows_where_its_objects_lie_and_which_buckets_the_user_gave(google: GooglePool) -> None:
    environment = google.enter()
    code = (
        "from t5x_harness.buckets.emulated import store; s = store(); "
        "print(s.local('gs://my-bucket/data/rows.tsv').read_text().split()[0], "
        "s.is_declared('/gcs/my-bucket/x'), s.is_declared('gs://other-bucket/x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["one", "True", "False"]
    google.leave(environment)


def test_the_server_ends_with_close_and_may_never_have_been_started() -> None:
    GooglePool().close()
    made = GooglePool()
    made.warm()
    made.close()
    made.close()
    assert made.is_installed()


def test_a_server_that_cannot_start_says_why_to_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert not GooglePool.is_installed()
    made = GooglePool()
    for _ in range(2):
        with pytest.raises(ServerError, match="needs cryptography, not installed here"):
            made.enter()
    made.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("gs://b/x/y", ("b", "x/y")),
        ("/gcs/b/x", ("b", "x")),
        ("gs://b", ("b", "")),
        ("gs://", None),
        ("/gcs/../etc", None),
        ("/gcsfuse/b/x", None),
        ("s3://b/x", None),
        ("relative/gcs/b", None),
    ],
)
def test_addresses(address: str, expected: tuple[str, str] | None) -> None:
    assert bucket_and_name(address) == expected


def test_no_file_has_a_name_that_leads_out_of_its_bucket(tmp_path: Path) -> None:
    here = Store(tmp_path)
    assert here.local("gs://b/x/") == tmp_path / "buckets" / "b" / "x"
    assert here.local("gs://b") == tmp_path / "buckets" / "b"
    assert [here.local(address) for address in ("gs://b/../c", "gs://b/x//y", "/gcs/b/./x", "/home/b")] == [None] * 4


def test_a_bucket_that_was_made_for_a_request_is_not_the_users(tmp_path: Path) -> None:
    """A bucket may exist only because of MODEL_DIR; a vocabulary that is in the real bucket still gets a stand-in."""
    with ObjectStore(tmp_path, create_buckets=True) as objects:
        objects.create_bucket("given")
        objects.bucket("made")
    here = store({ROOT_VARIABLE: str(tmp_path), STANDINS_VARIABLE: "/project"})
    assert here
    assert [here.is_declared(f"gs://{bucket}/x.model") for bucket in ("given", "made")] == [True, False]


def test_no_store_without_the_variable() -> None:
    assert store({}) is None
    assert store({ROOT_VARIABLE: ""}) is None
    assert store({ROOT_VARIABLE: "/r"}) == Store(Path("/r"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a root folder of serve --root, with the bucket bbb."""
    for name in ("cloud/buckets/bbb", "cloud/.t5x-harness"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "cloud"


def test_a_root_given_as_a_folder_of_buckets(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert buckets(str(root)) == str(root / "buckets")
    assert capsys.readouterr().err == (
        f"t5x-harness: the buckets of {root} are the folders in {root}/buckets, as serve --root has them\n"
    )
    (root.parent / "pyproject.toml").write_text('[tool.t5x_harness]\ngcs_root = "cloud"\n')
    assert load_project(root.parent).layer["gcs_root"] == str(root / "buckets")


@pytest.mark.parametrize("names", [(), ("my-bucket",), ("buckets", "my-bucket")])
def test_a_folder_of_buckets_is_itself(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert buckets(str(tmp_path)) == str(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_bucket_called_buckets_that_holds_an_object_is_one(tmp_path: Path) -> None:
    (tmp_path / "buckets").mkdir()
    (tmp_path / "buckets" / "object").write_text("")
    assert buckets(str(tmp_path)) == str(tmp_path)


def test_a_folder_of_buckets_given_as_a_root_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my-bucket").mkdir()
    assert root_of(str(tmp_path), "--root") == tmp_path
    assert capsys.readouterr().err == (
        f"t5x-harness: --root: {tmp_path} has no folder buckets, so it begins without a bucket: gs://my-bucket/x would "
        f"be {tmp_path}/buckets/my-bucket/x; move folders there that are buckets\n"
    )


@pytest.mark.parametrize("name", ["new", "cloud"])
def test_nothing_is_said_of_a_root(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert root_of(str(root.parent / name), "--root") == root.parent / name
    assert root_of(None, "--root") is None
    assert capsys.readouterr().err == ""
