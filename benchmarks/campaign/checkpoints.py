"""Mutants of checkpoints: paths, modes and maps, folders of other models and layouts, and damaged ones."""

import dataclasses
import itertools
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.spec import Mode

from .mutant import Case, Mutant, replaced

_STEP = "checkpoint_4"
_RIGHT = f"START/{_STEP}"
_PARAMS = "target/encoder/encoder_norm/scale"
_LEGACY = "train_script.train.use_orbax = False"


def _damaged(entry: Path, action: str) -> None:
    """Damages a file; of a folder, every file in it, or the folder itself if it is removed."""
    if action == "removed":
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    elif action == "without what is in it" and entry.is_dir():
        shutil.rmtree(entry)
        entry.mkdir()
    for file in [*entry.rglob("*")] if entry.is_dir() else [entry]:
        if file.is_file():
            content = file.read_bytes()
            cut = {"cut off": content[: len(content) // 2], "empty": b"", "garbled": bytes(b ^ 0x5A for b in content)}
            file.write_bytes(cut.get(action, content))


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How a folder of checkpoints is made.

    Attributes:
      lines: what is bound after ``pretrain.gin``, with which T5X then trains.
      model: what is replaced in ``model.gin`` before that, by what.
      entry: a pattern of the files and folders below it that are damaged.
      action: what is done to them, as :func:`_damaged` knows it, or a new name.
    """

    lines: tuple[str, ...] = ()
    model: tuple[tuple[str, str], ...] = ()
    entry: str = ""
    action: str = ""

    def change(self, folder: Path) -> None:
        """Does to a folder what is to be done after the training."""
        for entry in sorted(folder.glob(self.entry)) if self.entry else ():
            if self.action.startswith("called "):
                entry.rename(entry.with_name(self.action.removeprefix("called ")))
            else:
                _damaged(entry, self.action)


_SIZE = "network.T5Config."
_SCALABLE = (("t5x.examples.t5 ", "t5x.examples.scalable_t5 "), ("examples/t5/", "examples/scalable_t5/"))
_LAYOUTS: Mapping[str, Preparation] = {
    "orbax": Preparation(),
    "legacy": Preparation((_LEGACY,)),
}
_SIZES: Mapping[str, object] = {
    **{"emb_dim": 16, "num_heads": 2, "head_dim": 16, "mlp_dim": 32, "vocab_size": 512, "num_encoder_layers": 2},
    **{"num_decoder_layers": 2, "logits_via_embedding": True, "mlp_activations": "('relu',)", "dtype": "'bfloat16'"},
}
_MODELS: Mapping[str, Preparation] = {
    **{f"{name} {value}": Preparation((f"{_SIZE}{name} = {value}",)) for name, value in _SIZES.items()},
    "scanned": Preparation(model=_SCALABLE),
    "saved in bfloat16": Preparation(("utils.SaveCheckpointConfig.dtype = 'bfloat16'",)),
    "another optimizer": Preparation(
        ("from t5x import optimizers", "OPTIMIZER = @optimizers.sgd()", "optimizers.sgd.learning_rate = 0.1")
    ),
    "no factored state": Preparation(("adafactor.Adafactor.factored = False",)),
    "momentum": Preparation(("adafactor.Adafactor.beta1 = 0.9",)),
    "with dataset": Preparation(("utils.SaveCheckpointConfig.save_dataset = True",)),
}
_ACTIONS = ("removed", "cut off", "empty", "garbled", "without what is in it")
_ENTRIES = {
    "orbax": (
        *("", "/state", "/state/d", "/state/_METADATA", "/state/_sharding", "/state/manifest.ocdbt"),
        *("/state/ocdbt.process_0", "/state/array_metadatas", "/state/commit_success.txt", "/_CHECKPOINT_METADATA"),
        *("/commit_success.txt", "/dataset"),
    ),
    "legacy": ("", "/checkpoint", "/target.*", "/target.encoder.encoder_norm.scale", "/state.*", "/*/.zarray", "/*/0*"),
}
_NAMES = (
    *(
        f"{_STEP}{end}"
        for end in (".orbax-checkpoint-tmp-1795757641121", ".orbax-checkpoint-tmp", "-tmp", "_tmp", ".old")
    ),
    *("checkpoint_04", "checkpoint_5", "checkpoint4", "Checkpoint_4", "4", "state"),
)


def _preparations() -> Iterator[tuple[str, Preparation]]:
    for layout, made in _LAYOUTS.items():
        yield layout, made
        for name, model in _MODELS.items():
            yield f"{layout}, {name}", dataclasses.replace(model, lines=(*made.lines, *model.lines))
        for entry, action in itertools.product(_ENTRIES[layout], _ACTIONS):
            yield f"{layout}, {entry} {action}", dataclasses.replace(made, entry=f"{_STEP}{entry}", action=action)
        for name in _NAMES:
            yield f"{layout}, called {name}", dataclasses.replace(made, entry=_STEP, action=f"called {name}")


PREPARATIONS: Mapping[str, Preparation] = dict(_preparations())
"""Every way to make the folder from which a mutant starts, by name."""


def of_checkpoints(case: Case) -> Iterator[Mutant]:
    """Yields mutants of a case that starts from a checkpoint; none for others."""
    if re.search(r"^\w*CHECKPOINT_PATH = ", case.text, re.MULTILINE) is None:
        return
    for bucket in (False, True):
        yield from _paths(case, bucket)
        yield from _parameters(case, bucket)
        for name in PREPARATIONS:
            yield _mutant(case, "folder", name, _RIGHT, bucket=bucket)
            if " called " in name:
                renamed = f"START/{name.rpartition(' called ')[2]}"
                yield _mutant(case, "path of such a folder", name, renamed, bucket=bucket)
                yield _mutant(case, "latest of such a folder", name, "START", "mode = 'latest'", bucket=bucket)


def _paths(case: Case, bucket: bool) -> Iterator[Mutant]:
    paths = [
        *(
            _RIGHT,
            f"{_RIGHT}/",
            f"START//{_STEP}",
            f"START/./{_STEP}",
            f"{_RIGHT}/state",
            f"{_RIGHT}/commit_success.txt",
        ),
        *("START", "START/", "START/..", "START/checkpoint_5", "START/checkpoint_", "START/checkpoint_04"),
        *(
            "START/checkpoint-4",
            "START/Checkpoint_4",
            "START/checkpoint_*",
            "START/chekpoint_4",
            f"{_RIGHT}.",
            f"{_RIGHT} ",
        ),
        *(f" {_RIGHT}", f"{_RIGHT}\\n", f"STARTS/{_STEP}", f"$HOME/{_STEP}", f"~/{_STEP}", "", "."),
        *(f"../start/model/{_STEP}", f"file://{_RIGHT}", "START"),
    ]
    paths = [path for path in paths if not bucket or (path.startswith("START") and "/." not in path)]
    texts = [repr(path).replace("\\\\n", "\\n") for path in paths]
    texts += ["None", "[]", f"['{_RIGHT}']", f"['{_RIGHT}', 'START/checkpoint_2']", "['START']", f"('{_RIGHT}',)", "4"]
    modes = ("", "mode = 'specific'", "mode = 'latest'", "mode = 'all'", "mode = 'last'", "mode = None")
    for text, mode in itertools.product(texts, modes):
        yield _mutant(case, "path", "orbax", text, *([mode] if mode else []), bucket=bucket)


_MAPS = (
    *("[(r'nothing.*', None)]", "[(r'state/param_states.*', None)]", "[(r'.*', None)]", "[(r'.*', r'target/nothing')]"),
    *(f"[('{_PARAMS}', None)]", f"[('{_PARAMS}', 'target/encoder/encoder_norm/bias')]", "[(r'(.*', None)]"),
    *("[(r'target/(.*)', r'target/\\\\1')]", "[(r'target/(.*)', r'target/\\\\2')]", "[(r'(.*)', r'model/\\\\1')]"),
    *(f"[('{_PARAMS}', 'target/decoder/decoder_norm/scale')]", f"[('{_PARAMS}', '{_PARAMS}')]", "[('a', 'b', 'c')]"),
    *(
        f"[('{_PARAMS}', '{_PARAMS}'), ('{_PARAMS}', None)]",
        "{'target/(.*)': 'target/x'}",
        "'target'",
        "[]",
        "[('target',)]",
    ),
    *(f"[('{_PARAMS}', 'target/token_embedder/embedding')]", "[(r'target/encoder/.*', None)]", "[('target', 1)]"),
)
_RUNS = {Mode.TRAIN: "train_script.train", Mode.EVAL: "eval_script.evaluate", Mode.INFER: "infer_script.infer"}
_OTHERS = {
    "dtype": ("'float32'", "'bfloat16'", "'float16'", "'float64'", "'int32'", "'bf16'", "float32", "32", "None", "''"),
    "strict": ("False", "None", "'no'"),
    "fallback_to_scratch": ("True", "'True'"),
    "restore_dataset": ("True", "'yes'"),
    "state_transformation_fns": ("[]", "None", "[None]", "['target']", "@utils.RestoreCheckpointConfig"),
    "checkpointer_cls": ("None", "@checkpoints.SaveBestCheckpointer", "@checkpoints.Checkpointer()", "'Checkpointer'"),
    "checkpoint_manager_cls": ("None", "@utils.LegacyCheckpointManager", "'Manager'", "@checkpoints.Checkpointer"),
}


def _parameters(case: Case, bucket: bool) -> Iterator[Mutant]:
    run = _RUNS[case.mode]
    old = f"{run}.use_orbax = False"
    for layout in _LAYOUTS:
        for parameter, values in _OTHERS.items():
            for value in values:
                yield _mutant(case, parameter, layout, _RIGHT, f"{parameter} = {value}", bucket=bucket)
        for each, scratch, seed in itertools.product(_MAPS, (False, True), (False, True)):
            lines = ["fallback_to_scratch = True"] * scratch + [f"assignment_map = {each}"]
            before = (f"{run}.fallback_init_rng = 0",) if seed and scratch and case.mode is not Mode.TRAIN else ()
            yield _mutant(case, "map", layout, _RIGHT, *lines, before=before, bucket=bucket)
        yield _mutant(case, "reader", layout, _RIGHT, before=(old,), bucket=bucket)
    if case.mode is Mode.TRAIN:
        for part, value in itertools.product(("save", "restore"), ("None", "@utils.RestoreCheckpointConfig")):
            line = f"utils.CheckpointConfig.{part} = {value}"
            yield _mutant(case, "checkpoint config", "orbax", _RIGHT, before=(line,), bucket=bucket)


def _mutant(
    case: Case, kind: str, start: str, path: str, *lines: str, before: tuple[str, ...] = (), bucket: bool
) -> Mutant:
    """Changes the path of the checkpoint, and binds parameters of RestoreCheckpointConfig at the end of the file.

    Args:
      case: the case.
      kind: the class of the mistake.
      start: the name of the preparation.
      path: the path, or, if it does not begin with START, its value as Gin text.
      lines: the parameters and their values.
      before: other lines.
      bucket: whether the harness sees the folder in a bucket.
    """
    match = re.search(r"^(\w*CHECKPOINT_PATH) = .*$", case.text, re.MULTILINE)
    assert match is not None
    value = repr(path) if path.startswith("START") else path
    line = case.text.count("\n", 0, match.start()) + 1
    text = replaced(case.text, line, f"{match[1]} = {value}")
    added = [*before, *(f"utils.RestoreCheckpointConfig.{each}" for each in lines)]
    # What the model of the checkpoint has otherwise, if anything.
    other = start.rpartition(", ")[2].partition(" ")[0]
    names = [
        match[1],
        "RestoreCheckpointConfig.path",
        *([other] if other in _SIZES else []),
        *(each.partition(" = ")[0] for each in (*lines, *before)),
    ]
    text += "".join(f"{each}\n" for each in added)
    what = "; ".join((value, *lines, *before, start, *(["in a bucket"] if bucket else [])))
    where = text.count("\n") if added else line
    return Mutant(
        *(case.name, f"checkpoint: {kind}", what, {case.file: text}, case.file, where, tuple(names)),
        start=start,
        in_bucket=bucket,
    )
