"""``t5x-harness convert``: converts a T5X checkpoint to a transformers folder or to safetensors, and back."""

import argparse
import os
import re

from t5x_harness.commands.arguments import FINE, FOUND, UsageError, note, parts
from t5x_harness.conversion.request import ConversionError, ConversionRequest, Form, describe
from t5x_harness.findings.printable import printable
from t5x_harness.report.json import json_text
from t5x_harness.settings.forms import from_zero
from t5x_harness.slices.devices import use_cpu_only

EPILOG = """\
examples:
  t5x-harness convert run/checkpoint_1000 --to transformers --output hf
                                                  settings and vocabulary come from run/config.gin
  t5x-harness convert checkpoint_1000000 --to transformers --output hf --gin_file=t5x/examples/t5/mt5/base.gin \\
      --vocabulary=sentencepiece.model --dtype=bfloat16
  t5x-harness convert run --to transformers --output hf --check
                                                  the latest of a run, and is what it computes the same?
  t5x-harness convert run/checkpoint_1000 --to safetensors --output arrays
                                                  the parameters of any network, under their own names
  t5x-harness convert hf --to t5x --output restored
                                                  restored/checkpoint_1000, for INITIAL_CHECKPOINT_PATH

One array is in memory at a time, so a model of 11 billion parameters needs no more than its largest array. The
output is there when it is complete, or not at all.
exit status: 0 converted, 1 it cannot be, and the message names each array that does not fit, 2 wrong usage
"""

_FORMS = ("transformers", "safetensors", "t5x")
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``convert`` to a parser."""
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a checkpoint of T5X in any of its layouts, a folder of checkpoints (the latest is taken), one of "
        "TensorFlow (model.ckpt-1000000), or a folder that transformers or this command wrote",
    )
    parser.add_argument(
        "--to",
        choices=_FORMS,
        required=True,
        help="transformers: a folder for from_pretrained, of T5, mT5, umT5 and ByT5; safetensors: the parameters "
        "alone, under T5X's names, of any network; t5x: a checkpoint that T5X restores, without an optimizer's state",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FOLDER",
        help="a new folder, here or at gs://; a checkpoint of T5X goes into it as checkpoint_STEP",
    )
    model = parser.add_argument_group(
        "model", "what arrays do not show; read from the run's config.gin where it is there"
    )
    model.add_argument(
        "--gin_file",
        action="append",
        default=[],
        metavar="FILE",
        help="config of the checkpoint's run or model, for activations and vocabulary; may be repeated (default: the "
        "config.gin beside the checkpoint)",
    )
    model.add_argument(
        "--gin_bindings", action="append", default=[], metavar="BINDING", help="a Gin binding, parsed after the files"
    )
    model.add_argument(
        "--gin_search_paths", type=parts, default=(), metavar="DIR[,DIR]", help="folders where Gin files are looked up"
    )
    model.add_argument("--vocabulary", metavar="PATH", help="the SentencePiece model, or the word bytes")
    model.add_argument(
        "--extra-ids",
        type=from_zero,
        default=0,
        metavar="N",
        help="sentinels that SeqIO adds to --vocabulary (default: 0)",
    )
    model.add_argument(
        "--model-type", choices=("t5", "mt5", "umt5"), help="of transformers (default: by biases, vocabulary and size)"
    )
    written = parser.add_argument_group("what is written")
    written.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="element type of all floats (default: each as it is)",
    )
    written.add_argument(
        "--step", type=_step, metavar="N", help="train step of the T5X checkpoint (default: the source's)"
    )
    written.add_argument(
        "--scan-layers",
        action=argparse.BooleanOptionalAction,
        help="with --to t5x, whether a umT5 has one array for all layers (default: as before; scanned if not known)",
    )
    written.add_argument(
        "--shard-size",
        type=_size,
        default="5GB",
        metavar="SIZE",
        help="the most data of a file, such as 500MB (default: 5GB)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="with --to transformers, run the result in transformers and compare its logits and greedy outputs with "
        "those of T5X's network, in float32; needs the extra convert, and memory for both",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to report (default: text)")


def main(arguments: argparse.Namespace) -> int:
    """Converts a checkpoint and reports the result.

    Returns:
      The exit status: 0, or 1 if it could not be converted or the result computes something else.
    """
    use_cpu_only()
    from t5x_harness.conversion.conversion import convert

    try:
        conversion = convert(_request(arguments))
    except ConversionError as error:
        note(str(error))
        return FOUND
    print(json_text(conversion.to_json()) if arguments.format == "json" else printable("\n".join(describe(conversion))))
    return FINE


def _request(arguments: argparse.Namespace) -> ConversionRequest:
    """Returns the conversion that the arguments request.

    Raises:
      UsageError: an option does not apply to this conversion.
    """
    to = Form(arguments.to)
    for option, given, form in (
        ("--model-type", arguments.model_type, Form.TRANSFORMERS),
        ("--vocabulary", arguments.vocabulary, Form.TRANSFORMERS),
        ("--gin_file", arguments.gin_file, Form.TRANSFORMERS),
        ("--gin_bindings", arguments.gin_bindings, Form.TRANSFORMERS),
        ("--check", arguments.check, Form.TRANSFORMERS),
        ("--step", arguments.step is not None, Form.T5X),
        ("--scan-layers", arguments.scan_layers is not None, Form.T5X),
    ):
        if given and to is not form:
            raise UsageError(f"{option} is for --to {form}, not for --to {to}: leave it out")
    return ConversionRequest(
        checkpoint=arguments.checkpoint,
        to=to,
        output=os.path.expanduser(arguments.output),
        gin_files=tuple(arguments.gin_file),
        bindings=tuple(arguments.gin_bindings),
        search_paths=tuple(arguments.gin_search_paths),
        vocabulary=arguments.vocabulary,
        extra_ids=arguments.extra_ids,
        model_type=arguments.model_type,
        dtype=arguments.dtype,
        step=arguments.step,
        scanned=arguments.scan_layers,
        shard_bytes=arguments.shard_size,
        check=arguments.check,
    )


def _step(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a step: give a whole number, such as 1000000")
    return int(text)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]B)?", text, re.IGNORECASE)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give bytes, or a number with KB, MB or GB")
    return int(match[1]) * _UNITS[(match[2] or "").upper()]
