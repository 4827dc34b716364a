"""GIN35, CKP20, INF04 and MOD03: names that are none of a parameter's, where the mistake has a rule of its own."""

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.lint.rule import Context
from t5x_harness.lint.rules.values import not_a_choice
from t5x_harness.spec import Severity

_INFER = run_head("infer")
_NETWORK = run_head("pretrain", "from t5x.examples.t5 import network")
_SCALABLE = run_head("pretrain", "from t5x.examples.scalable_t5 import network", model="small").replace(
    "examples/t5/", "examples/scalable_t5/"
)
_TRAIN = run_head("pretrain", "from t5x import utils")


@Rule(
    "INF04",
    "mode of inference that does not exist",
    why="T5X refuses it only after the job has started and written its config, with `mode must be one of`.",
    bad=Example(_INFER, bindings=("infer.mode = 'generate'",), at="infer.mode"),
    good=Example(_INFER, bindings=("infer.mode = 'predict_with_aux'",)),
)
def infer_mode(context: Context) -> Iterator[Found]:
    """Finds a mode that T5X's ``infer`` does not support."""
    yield from not_a_choice(context, "INF04")


@Rule(
    "MOD03",
    "remat policy that does not exist, which T5X takes for 'full'",
    severity=Severity.WARNING,
    why=(
        "T5X's scalable networks compare the policy with 'none' and 'minimal', and take anything else for 'full': each "
        "layer is computed again for the gradients. A misspelt 'minimal', or 'None' in quotes, makes steps slower, and "
        "nothing says so."
    ),
    bad=Example(_SCALABLE + "network.T5Config.remat_policy = 'minmal'\n", at="network.T5Config.remat_policy"),
    good=Example(_SCALABLE + "network.T5Config.remat_policy = 'minimal'\n"),
)
def unknown_remat_policy(context: Context) -> Iterator[Found]:
    """Finds each remat policy of a scalable network that T5X treats as another one."""
    yield from not_a_choice(context, "MOD03")


@Rule(
    "GIN35",
    "dtype that does not exist",
    why="The model asks JAX for the type when it is built, and stops with `data type not understood`.",
    bad=Example(_NETWORK + "network.T5Config.dtype = 'bfloat15'\n", at="network.T5Config.dtype"),
    good=Example(_NETWORK + "network.T5Config.dtype = 'bfloat16'\n"),
)
def unknown_type(context: Context) -> Iterator[Found]:
    """Finds a type that JAX does not have, in each of T5X's models."""
    yield from not_a_choice(context, "GIN35")


@Rule(
    "CKP20",
    "checkpoint dtype that T5X does not know",
    why="T5X takes None, 'float32' and 'bfloat16', and for restoring 'float16' too; it refuses all other names.",
    bad=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'fp32'\n", at="utils.SaveCheckpointConfig.dtype"),
    good=Example(_TRAIN + "utils.SaveCheckpointConfig.dtype = 'float32'\n"),
)
def checkpoint_dtype(context: Context) -> Iterator[Found]:
    """Finds a dtype that T5X's checkpoint configs refuse, for saving and for restoring."""
    yield from not_a_choice(context, "CKP20")
