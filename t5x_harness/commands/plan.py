"""``t5x-harness plan``: reports the shapes, mesh, memory and steps of configs without executing them."""

import argparse

from t5x_harness.commands import run
from t5x_harness.commands.arguments import add_run_arguments
from t5x_harness.spec import Stage

EPILOG = """\
examples:
  t5x-harness plan configs/finetune.gin --slice=v3-32
  t5x-harness plan configs/finetune.gin --slice=v4:2x2x2 --gin.BATCH_SIZE=256
  t5x-harness plan configs/finetune.gin --format json --output plan.json
  t5x-harness plan configs/ --plan-golden=golden  fail if a plan differs from the one kept in golden/

exit status: 0 the config resolves and shards, 1 it does not, 2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``plan`` to a parser; the last stage is the one before any execution."""
    add_run_arguments(parser, "plan")
    parser.set_defaults(until=Stage.AOT)


main = run.main
