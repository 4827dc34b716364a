"""The train step of a user's own model is traced in the plan, before anything is trained."""

import textwrap
from collections.abc import Callable

import pytest

from t5x_harness.spec import Outcome, Severity, StageResult

Plan = Callable[..., StageResult]

LINES = (
    "import mine",
    "MODEL = @mine.Model()",
    "mine.Model.module = @network.Transformer()",
    "mine.Model.input_vocabulary = %VOCABULARY",
    "mine.Model.output_vocabulary = %VOCABULARY",
    "mine.Model.optimizer_def = %OPTIMIZER",
)
HEAD = """\
import jax.numpy as jnp
import seqio
from t5x import metrics, models


class Model(models.EncoderDecoderModel):
"""


def planned(plan: Plan, body: str, *lines: str) -> StageResult:
    return plan(*LINES, *lines, modules={"mine": HEAD + textwrap.indent(textwrap.dedent(body), "    ")})


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("def loss_fn(self, params, batch):\n    return 0.0\n", 7, "not as its caller"),
        (
            "def loss_fn(self, params, batch, dropout_rng):\n"
            "    return super().loss_fn(params, batch, dropout_rng)[0]\n",
            7,
            "does not return a loss and a dict of metrics",
        ),
        (
            "def loss_fn(self, params, batch, dropout_rng):\n"
            "    loss, metrics = super().loss_fn(params, batch, dropout_rng)\n"
            "    return loss, {**metrics, 'mine': loss}\n",
            7,
            "returns the metric mine as an array or a number",
        ),
        (
            "def loss_fn(self, params, batch, dropout_rng):\n"
            "    loss, metrics = super().loss_fn(params, batch, dropout_rng)\n"
            "    return loss + jnp.sum(batch['my_weights']), metrics\n",
            9,
            "my_weights",
        ),
    ],
)
def test_a_mistake_in_the_loss_is_found_at_its_line(plan: Plan, body: str, line: int, words: str) -> None:
    (error,) = planned(plan, body).errors
    assert (error.code, str(error.location)) == ("USR01", f"mine.py:{line}")
    assert words in error.message


def test_the_trainer_for_preempted_jobs_takes_the_same_step(plan: Plan) -> None:
    bound = ("from t5x_harness import preemption", "train_script.train.trainer_cls = @preemption.Trainer")
    (error,) = planned(plan, "def loss_fn(self, params, batch):\n    return 0.0\n", *bound).errors
    assert (error.code, str(error.location)) == ("USR01", "mine.py:7")


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "def loss_fn(self, params, batch, dropout_rng):\n"
            "    loss, found = super().loss_fn(params, batch, dropout_rng)\n"
            "    return loss * 2, {**found, 'mine': metrics.AveragePerStep(total=loss)}\n",
            (),
        ),
        (  # a converter may give more features than it declares, which only a run shows
            "class FEATURE_CONVERTER_CLS(seqio.EncDecFeatureConverter):\n"
            "    pass\n\n"
            "def loss_fn(self, params, batch, dropout_rng):\n"
            "    batch['my_weights']\n"
            "    return super().loss_fn(params, batch, dropout_rng)\n",
            (),
        ),
        (  # so may a trainer
            "def loss_fn(self, params, batch, dropout_rng, temperature):\n"
            "    return super().loss_fn(params, batch, dropout_rng)\n",
            ("import own_trainer", "train_script.train.trainer_cls = @own_trainer.Trainer"),
        ),
    ],
)
def test_what_is_right_or_not_known_is_no_error(plan: Plan, body: str, lines: tuple[str, ...]) -> None:
    trainer = "from t5x import trainer\n\n\nclass Trainer(trainer.Trainer):\n    pass\n"
    modules = {"mine": HEAD + textwrap.indent(body, "    "), "own_trainer": trainer}
    rate = "from t5x import utils\nown_trainer.Trainer.learning_rate_fn = @utils.create_learning_rate_scheduler()"
    of_trainer = (*lines, rate, "own_trainer.Trainer.num_microbatches = None") if lines else ()
    result = plan(*LINES, *of_trainer, modules=modules)
    assert result.outcome is Outcome.PASSED, [f for f in result.findings if f.severity is Severity.ERROR]
