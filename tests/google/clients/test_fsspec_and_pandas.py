"""gcsfs, fsspec and libraries that are based on them, in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gcsfs", reason="gcsfs is not installed")

import fsspec
import gcsfs
import pandas

BODY = bytes(range(256)) * 40_000


@pytest.fixture
def files(fake_gcs: Any) -> Iterator[Any]:
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield gcsfs.GCSFileSystem()
    gcsfs.GCSFileSystem.clear_instance_cache()


def test_files(files: Any, gcs_bucket: str, tmp_path: Path, read_back: Callable[..., None]) -> None:
    at = f"{gcs_bucket}/fs"
    with files.open(f"{at}/written", "wb", block_size=1 << 20) as file:  # a resumable upload in blocks
        for start in range(0, len(BODY), 900_000):
            file.write(BODY[start : start + 900_000])
    files.pipe({f"{at}/one": b"1", f"{at}/deep/two": b"22"})
    files.pipe_file(f"{at}/large", BODY)
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "leaf").write_bytes(b"leaf")
    files.put(str(tmp_path / "tree"), f"{at}/put", recursive=True)
    files.cp_file(f"{at}/one", f"{at}/copied")
    files.mv(f"{at}/copied", f"{at}/moved")
    with files.open(f"{at}/text", "w") as file:
        file.write("first\nsecond ü\n")
    with files.open(f"{at}/written", "rb") as file:
        file.seek(-10, 2)
        assert file.read() == BODY[-10:]
    assert files.cat_file(f"{at}/large", start=5, end=9) == BODY[5:9]
    assert files.cat_ranges([f"{at}/large"] * 2, [0, 100], [3, 105]) == [BODY[:3], BODY[100:105]]
    assert files.info(f"{at}/one")["size"] == 1
    assert files.isdir(f"{at}/deep")
    assert not files.exists(f"{at}/copied")
    assert sorted(files.find(at)) == sorted(
        f"{at}/{name}" for name in ("deep/two", "large", "moved", "one", "put/sub/leaf", "text", "written")
    )
    assert sorted(files.glob(f"{at}/*e*")) == sorted(
        [f"{at}/deep", f"{at}/large", f"{at}/moved", f"{at}/one", f"{at}/text", f"{at}/written"]
    )
    files.get(f"{at}/put", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "sub" / "leaf").read_bytes() == b"leaf"
    written = {"written": BODY, "large": BODY, "one": b"1", "moved": b"1", "deep/two": b"22", "put/sub/leaf": b"leaf"}
    written["text"] = "first\nsecond ü\n".encode()
    read_back(gcs_bucket, {f"fs/{name}": data for name, data in written.items()}, by="gcsfs")
    files.rm(at, recursive=True)
    files.invalidate_cache()
    assert files.find(gcs_bucket) == []


@pytest.mark.usefixtures("files")
def test_addresses(gcs_bucket: str, read_back: Callable[..., None]) -> None:
    with fsspec.open(f"gs://{gcs_bucket}/a", "w") as file:
        file.write("by address")
    with fsspec.open(f"gcs://{gcs_bucket}/packed.gz", "wb", compression="gzip") as file:
        file.write(b"packed")
    with fsspec.open(f"gs://{gcs_bucket}/packed.gz", "rb", compression="infer") as file:
        assert file.read() == b"packed"
    mapper = fsspec.get_mapper(f"gs://{gcs_bucket}/map")
    mapper["key/0.0"] = b"value"
    assert list(mapper) == ["key/0.0"]
    read_back(gcs_bucket, {"a": b"by address", "map/key/0.0": b"value"}, by="gcsfs")
    with pytest.raises(FileNotFoundError), fsspec.open(f"gs://{gcs_bucket}/none", "rb"):
        pass


@pytest.mark.usefixtures("files")
def test_pandas(gcs_bucket: str, read_back: Callable[..., None]) -> None:
    frame = pandas.DataFrame({"step": [1, 2, 3], "loss": [0.5, 0.25, 0.125], "note": ["a", "ü", "c,d"]})
    at = f"gs://{gcs_bucket}/frames"
    frame.to_csv(f"{at}/f.csv", index=False)
    frame.to_csv(f"{at}/f.csv.gz", index=False)
    frame.to_json(f"{at}/f.jsonl", orient="records", lines=True, force_ascii=False)
    for name in ("f.csv", "f.csv.gz"):
        pandas.testing.assert_frame_equal(pandas.read_csv(f"{at}/{name}"), frame)
    pandas.testing.assert_frame_equal(pandas.read_json(f"{at}/f.jsonl", lines=True), frame)
    lines = (
        '{"step":1,"loss":0.5,"note":"a"}\n{"step":2,"loss":0.25,"note":"ü"}\n{"step":3,"loss":0.125,"note":"c,d"}\n'
    )
    csv = 'step,loss,note\n1,0.5,a\n2,0.25,ü\n3,0.125,"c,d"\n'
    read_back(gcs_bucket, {"frames/f.csv": csv.encode(), "frames/f.jsonl": lines.encode()}, by="gcsfs")
