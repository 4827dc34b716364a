"""GIN12 and GIN31: configs of another mode, and files that are not run configs."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import ENTRIES
from t5x_harness.lint.classify import unbound_parameters
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.rules.auxiliary_job import binds_several_modes
from t5x_harness.spec import Location, Mode

_HEAD = "include 't5x/examples/t5/t5_1_1/tiny.gin'\n"
_DYNAMIC = "from __gin__ import dynamic_registration\nimport __main__ as train_script\n"
_FORGOTTEN = "train_script.train.total_steps = 100\n"
_FUNCTIONS = {mode: name.rpartition(".")[2] for name, mode in ENTRIES.items()}


GIN12 = Mistake(
    "GIN12",
    "config for another run mode",
    why=(
        "`import __main__ as train_script` is whatever was launched: a train config given to the eval binary stops "
        "with `AttributeError: Couldn't resolve selector train_script.train`."
    ),
    bad=Example(
        _HEAD + "include 't5x/configs/runs/pretrain.gin'\n",
        mode=Mode.EVAL,
        at="include 't5x/configs/runs/pretrain.gin'",
    ),
    good=Example(_HEAD + "include 't5x/configs/runs/pretrain.gin'\n", mode=Mode.TRAIN),
)


@finds(GIN12)
def wrong_mode(context: Context) -> Iterator[Found]:
    """Finds each function of another mode that is bound; AUX02 has those beside the right one."""
    wanted = context.program.spec.mode
    if wanted is None or binds_several_modes(context):
        return
    for binding in context.program.entries:
        mode = ENTRIES.get(binding.target)
        if mode is not None and mode is not wanted:
            yield Found(
                f"{binding} is for {mode} runs ({_FUNCTIONS[mode]}), and {wanted} was asked for",
                binding,
                f"run it with --run_mode={mode}, or include the run file for {wanted}",
            )


GIN31 = Mistake(
    "GIN31",
    "gin file that is not a run config",
    why=(
        "A run config binds T5X's train, evaluate or infer and everything that the function has no default for; other "
        "files are fragments, made to be included."
    ),
    bad=Example(_DYNAMIC + _HEAD + _FORGOTTEN, at="train_script.train.total_steps"),
    good=Example(_DYNAMIC + _HEAD + "include 't5x/configs/runs/pretrain.gin'\n" + _FORGOTTEN),
)


@finds(GIN31, whole_program=True)
def no_run_config(context: Context) -> Iterator[Found]:
    """Finds that there is nothing to run, or names all parameters that are not bound."""
    program = context.program
    if not program.statements and program.problems:
        return
    first = Location(program.files[0], 1) if program.files else None
    if program.mode is None:
        others = f"; it binds {program.entries[0]}, which the harness does not run" if program.entries else ""
        yield Found(
            f"this is not a run config: it binds none of T5X's functions train, evaluate and infer{others}",
            first,
            "include a run file ('t5x/configs/runs/pretrain.gin', finetune.gin, eval.gin or infer.gin), or name it "
            "as one of several gin files of a run",
        )
    elif missing := unbound_parameters(program, context.snapshot):
        entry = (program.entry or "").rpartition(".")[2]
        at = next(b for b in program.entries if b.target == program.entry)
        yield Found(
            f"{entry} needs {', '.join(missing)}, and nothing binds {'it' if len(missing) == 1 else 'them'}",
            at.location,
            f"bind {', '.join(f'{entry}.{name}' for name in missing)}, or include the run file that does",
            binding=f"{entry}.{missing[0]}",
        )
