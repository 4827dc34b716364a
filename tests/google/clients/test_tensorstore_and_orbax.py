"""tensorstore, orbax's checkpoints that are based on it, and etils.epath."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_keys(tensors: Any, gcs_bucket: str, read_back: Callable[..., None]) -> None:
    told = tensors(
        """
        kv = ts.KvStore.open(f"gs://{bucket}/ts/").result()
        for name, body in (("a", b"a"), ("a/b", b"below"), ("large", b"x" * 3_000_000), ("empty", b"")):
            kv.write(name, body).result()
        first = kv.read("a").result().stamp.generation
        kv.write("a", b"again", if_equal=first).result()
        late = kv.write("a", b"too late", if_equal=first).result()
        with ts.Transaction() as transaction:
            kv.with_transaction(transaction)["left"] = b"l"
            kv.with_transaction(transaction)["right"] = b"r"
        kv.delete_range(ts.KvStore.KeyRange("empty", "empty0")).result()
        result = [
            bytes(kv.read("a").result().value).decode(),
            late.generation == b"",
            sorted(key.decode() for key in kv.list().result()),
            len(kv.read("large").result().value),
            kv.read("none").result().state,
        ]
        """,
        bucket=gcs_bucket,
    )
    assert told == ["again", True, ["a", "a/b", "large", "left", "right"], 3_000_000, "missing"]
    written = {"ts/a": b"again", "ts/a/b": b"below", "ts/large": b"x" * 3_000_000, "ts/left": b"l", "ts/right": b"r"}
    read_back(gcs_bucket, written, by="tensorstore")


ARRAYS = """
def spec(driver, at):
    base = {"driver": driver, "kvstore": at}
    if driver == "ocdbt":  # a database of keys, with an array in it
        base = {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": at, "path": "array/"}}
    return base

def metadata(driver):
    if driver == "zarr":
        return {"shape": [64, 6], "chunks": [8, 3], "dtype": "<f4"}
    return {
        "shape": [64, 6], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 3]}},
    }

numbers = np.arange(64 * 6, dtype=np.float32).reshape(64, 6)

def same(driver, at):
    array = ts.open(spec(driver, at)).result()
    return bool((array.read().result() == numbers).all() and (array[5:9, 2].read().result() == numbers[5:9, 2]).all())
"""


def test_arrays(tensors: Any, gcs_bucket: str, fetch_folder: Callable[[str, str], Path]) -> None:
    drivers = ["zarr", "zarr3", "ocdbt"]
    told = tensors(
        f"{ARRAYS}\n"
        """
for driver in drivers:
    at = f"gs://{bucket}/arrays/{driver}/"
    array = ts.open({**spec(driver, at), "metadata": metadata(driver)}, create=True).result()
    with ts.Transaction() as transaction:
        array.with_transaction(transaction)[:32].write(numbers[:32]).result()
    array[32:].write(numbers[32:]).result()
result = [same(driver, f"gs://{bucket}/arrays/{driver}/") for driver in drivers]
""",
        bucket=gcs_bucket,
        drivers=drivers,
    )
    assert told == [True, True, True]
    folder = fetch_folder(gcs_bucket, "arrays")
    again = tensors('result = [same(driver, f"file://{folder}/{driver}/") for driver in drivers]', folder=str(folder))
    assert again == [True, True, True]


ORBAX = """
import jax, jax.numpy as jnp, orbax.checkpoint as ocp

state = {"step": jnp.asarray(7), "params": {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.ones(4, jnp.bfloat16)}}

def same(found):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True)
    return all(bool((a == b).all()) and a.dtype == b.dtype for a, b in pairs)
"""


def test_orbax(tensors: Any, gcs_bucket: str, fetch_folder: Callable[[str, str], Path]) -> None:
    told = tensors(
        f"{ORBAX}\n"
        """
at = f"gs://{bucket}/orbax"
with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
    checkpointer.save(f"{at}/sync", args=ocp.args.StandardSave(state))
with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
    checkpointer.save(f"{at}/zarr", args=ocp.args.PyTreeSave(state))
with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as checkpointer:
    checkpointer.save(f"{at}/async", args=ocp.args.StandardSave(state))
    checkpointer.wait_until_finished()
    restored = checkpointer.restore(f"{at}/async", args=ocp.args.StandardRestore(state))
options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True)
with ocp.CheckpointManager(f"{at}/manager", options=options) as manager:
    for step in range(4):
        manager.save(step, args=ocp.args.StandardSave({**state, "step": jnp.asarray(step)}))
    manager.wait_until_finished()
with ocp.CheckpointManager(f"{at}/manager") as manager:
    steps, last = list(manager.all_steps()), manager.restore(manager.latest_step())
result = [same(restored), steps, int(last["step"])]
""",
        bucket=gcs_bucket,
    )
    assert told == [True, [2, 3], 3]
    folder = fetch_folder(gcs_bucket, "orbax")
    read = """
        handlers = {
            "sync": (ocp.StandardCheckpointHandler(), ocp.args.StandardRestore(state)),
            "async": (ocp.StandardCheckpointHandler(), ocp.args.StandardRestore(state)),
            "manager/3/default": (ocp.StandardCheckpointHandler(), ocp.args.StandardRestore(state)),
            "zarr": (ocp.PyTreeCheckpointHandler(use_ocdbt=False), ocp.args.PyTreeRestore(state)),
        }
        result = {}
        for name, (handler, args) in handlers.items():
            found = ocp.Checkpointer(handler).restore(f"{at}/{name}", args=args)
            result[name] = same({**found, "step": state["step"]}), int(found["step"])
        """
    wanted = {"sync": [True, 7], "async": [True, 7], "manager/3/default": [True, 3], "zarr": [True, 7]}
    assert tensors(read, at=f"gs://{gcs_bucket}/orbax") == wanted
    assert tensors(read, at=str(folder)) == wanted


def test_epath(tensors: Any, gcs_bucket: str, read_back: Callable[..., None]) -> None:
    told = tensors(
        """
        from etils import epath
        at = epath.Path(f"gs://{bucket}/epath")
        at.mkdir(parents=True, exist_ok=True)
        (at / "text").write_text("text \\N{SNOWMAN}")
        (at / "bytes").write_bytes(bytes(range(256)))
        (at / "text").copy(at / "copied")
        (at / "copied").rename(at / "moved")
        with (at / "deep" / "opened").open("w") as file:
            file.write("opened")
        (at / "gone").write_text("gone")
        (at / "gone").unlink()
        (at / "tree" / "leaf").write_text("leaf")
        (at / "tree").rmtree()
        result = [
            (at / "text").read_text(),
            (at / "bytes").stat().length,
            sorted(path.name for path in at.iterdir()),
            sorted(path.name for path in at.glob("*e*")),
            [(at / name).exists() for name in ("text", "deep", "copied", "gone", "tree/leaf")],
            [at.is_dir(), (at / "text").is_dir()],
        ]
        """,
        bucket=gcs_bucket,
    )
    assert told == [
        "text \N{SNOWMAN}",
        256,
        ["bytes", "deep", "moved", "text"],
        ["bytes", "deep", "moved", "text"],
        [True, True, False, False, False],
        [True, False],
    ]
    text = "text \N{SNOWMAN}".encode()
    written = {"text": text, "moved": text, "bytes": bytes(range(256)), "deep/opened": b"opened"}
    read_back(gcs_bucket, {f"epath/{name}": data for name, data in written.items()}, by="tensorflow")


def test_orbax_clears_up_what_is_no_checkpoint(tensors: Any, fake_gcs: Any, gcs_bucket: str) -> None:
    """This is the case of the plan's warning CKP22, with the options that T5X passes to orbax."""
    kept = {"run/config.gin": "", "run/checkpoint_6/commit_success.txt": "", "run/checkpoint_6/state/d": "x"}
    older = {"run/checkpoint_5/checkpoint": "x", "run/checkpoint_5/target.a/.zarray": "{}"}
    fake_gcs.put(gcs_bucket, {**kept, **older, "run/train/events": "x", "run/training_eval/task/events": "x"})
    told = tensors(
        """
        import orbax.checkpoint as ocp
        options = ocp.CheckpointManagerOptions(step_prefix="checkpoint", cleanup_tmp_directories=True)
        handlers = {"state": ocp.PyTreeCheckpointHandler(use_ocdbt=True)}
        with ocp.CheckpointManager(f"gs://{bucket}/run", options=options, item_handlers=handlers) as manager:
            manager.save(7, args=ocp.args.Composite(state=ocp.args.PyTreeSave({"a": np.zeros(2)})))
            manager.wait_until_finished()
        result = sorted(tf.io.gfile.listdir(f"gs://{bucket}/run"))
        """,
        bucket=gcs_bucket,
    )
    assert [name.strip("/") for name in told if name.strip("/")] == ["checkpoint_6", "checkpoint_7", "config.gin"]
