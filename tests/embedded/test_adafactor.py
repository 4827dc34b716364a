"""Adafactor updates parameters as its paper says, computed here again in NumPy."""

from typing import Any

import flax.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from t5x import adafactor, optimizers
from t5x.adafactor import FactorDim, HParamMap

ROW, COLUMN, BATCH, NONE = FactorDim.ROW, FactorDim.COLUMN, FactorDim.BATCH, FactorDim.NONE
RANDOM = np.random.RandomState(0)


def train(optimizer: adafactor.Adafactor, param: np.ndarray, grads: list[np.ndarray], rate: float = 0.1) -> Any:
    """Returns the parameter and its state after some updates."""
    made = optimizer.create({"w": jnp.asarray(param)})
    for grad in grads:
        made = made.apply_gradient({"w": jnp.asarray(grad)}, learning_rate=rate)
    return np.asarray(made.target["w"]), made.state.param_states["w"]


def rms(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    return np.sqrt(np.mean(x * x, axis=dims, keepdims=True))


def expected(
    param: np.ndarray,
    grads: list[np.ndarray],
    *,
    rate: float = 0.1,
    rows: tuple[int, ...] = (),
    columns: tuple[int, ...] = (),
    batch: tuple[int, ...] = (),
    beta1: float | None = None,
    clip: float | None = 1.0,
    decay: float | None = None,
    by_scale: bool = True,
    max_scale: float = np.inf,
    exponent: float = 0.8,
    offset: int = 0,
) -> np.ndarray:
    """Returns the parameter after some updates, in double precision."""
    p = param.astype(np.float64)
    inner = tuple(d for d in range(p.ndim) if d not in batch)
    v = np.zeros_like(p)
    row, column, momentum = np.zeros(()), np.zeros(()), np.zeros_like(p)
    for step, grad in enumerate(grads):
        g = grad.astype(np.float64)
        keep = 1 - (step - offset + 1.0) ** -exponent
        square = g * g + 1e-30
        if rows:
            row = keep * row + (1 - keep) * square.mean(columns, keepdims=True)
            column = keep * column + (1 - keep) * square.mean(rows, keepdims=True)
            update = g / np.sqrt(row / row.mean(rows, keepdims=True) * column)
        else:
            v = keep * v + (1 - keep) * square
            update = g / np.sqrt(v)
        if clip is not None:
            update = update / np.maximum(1.0, rms(update, inner) / clip)
        size = rate * (np.clip(rms(p, inner), 1e-3, max_scale) if by_scale else 1.0)
        change = size * update
        if beta1 is not None:
            momentum = beta1 * momentum + (1 - beta1) * change
            change = momentum
        p = (1 - (decay or 0.0)) * p - change
    return p


def three_grads(shape: tuple[int, ...]) -> list[np.ndarray]:
    return [RANDOM.randn(*shape).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({}, {}),
        ({"beta1": 0.9}, {"beta1": 0.9}),
        ({"clipping_threshold": None}, {"clip": None}),
        ({"clipping_threshold": 0.5}, {"clip": 0.5}),
        ({"weight_decay_rate": 0.01}, {"decay": 0.01}),
        ({"weight_decay_rate_lr_exponent": 2.0}, {"decay": 0.1**2}),
        ({"weight_decay_rate": 0.5, "weight_decay_rate_lr_exponent": 2.0}, {"decay": 0.5 * 0.1**2}),
        ({"multiply_by_parameter_scale": False}, {"by_scale": False}),
        ({"multiply_by_parameter_scale": HParamMap([("w", False)])}, {"by_scale": False}),
        ({"multiply_by_parameter_scale": HParamMap([("w", True)])}, {}),
        ({"max_parameter_scale": 0.3}, {"max_scale": 0.3}),
        ({"decay_rate": 0.5, "step_offset": -4}, {"exponent": 0.5, "offset": -4}),
    ],
)
@pytest.mark.parametrize("factored", [False, True])
def test_an_update_is_that_of_the_paper(settings: dict, facts: dict, factored: bool) -> None:
    param, grads = RANDOM.randn(6, 8).astype(np.float32), three_grads((6, 8))
    factors = {"rows": (0,), "columns": (1,)} if factored else {}
    trained, _ = train(adafactor.Adafactor(min_dim_size_to_factor=4 if factored else 128, **settings), param, grads)
    np.testing.assert_allclose(trained, expected(param, grads, **facts, **factors), rtol=2e-5, atol=1e-6)


def test_a_rule_factors_stacked_parameters_each_for_itself() -> None:
    param, grads = RANDOM.randn(3, 4, 5, 2).astype(np.float32), three_grads((3, 4, 5, 2))
    rules = HParamMap([("w", (BATCH, ROW, COLUMN, COLUMN))])
    trained, moments = train(adafactor.Adafactor(factor_map=rules), param, grads)
    assert (moments.v_row.shape, moments.v_col.shape, moments.v.shape) == ((3, 4), (3, 5, 2), (1,))
    wanted = expected(param, grads, rows=(1,), columns=(2, 3), batch=(0,))
    np.testing.assert_allclose(trained, wanted, rtol=2e-5, atol=1e-6)


def test_gradients_are_clipped_by_their_common_norm() -> None:
    param, (grad, *_) = RANDOM.randn(5).astype(np.float32), three_grads((5,))
    grad = 10 * grad
    clipped, moments = train(adafactor.Adafactor(global_norm_clip_threshold=2.0), param, [grad])
    small = (grad * 2.0 / np.linalg.norm(grad)).astype(np.float32)
    np.testing.assert_allclose(moments.v, small**2, rtol=1e-5)
    np.testing.assert_allclose(clipped, expected(param, [small]), rtol=1e-5)


def test_elements_that_would_be_nan_stay() -> None:
    param, (grad, *_) = RANDOM.randn(4).astype(np.float32), three_grads((4,))
    grad[1] = np.nan
    spoilt, _ = train(adafactor.Adafactor(clipping_threshold=None), param, [grad])
    assert np.isnan(spoilt).tolist() == [False, True, False, False]
    kept, moments = train(adafactor.Adafactor(clipping_threshold=None, skip_nan_updates=True), param, [grad])
    assert kept[1] == param[1]
    assert moments.v[1] == 0
    assert np.isfinite(kept).all()


def test_low_precision_parameters_stay_so_and_moments_do_not() -> None:
    made = adafactor.Adafactor(0.1, beta1=0.9, dtype_momentum=jnp.bfloat16).create({"w": jnp.ones((3,), jnp.bfloat16)})
    made = made.apply_gradient({"w": jnp.ones((3,), jnp.bfloat16)})
    moments = made.state.param_states["w"]
    assert (made.target["w"].dtype, moments.v.dtype, moments.m.dtype) == (jnp.bfloat16, jnp.float32, jnp.bfloat16)


@pytest.mark.parametrize(
    ("shape", "rule", "shapes"),
    [
        ((200, 300), None, ((200,), (300,), (1,))),
        ((300, 200), None, ((200,), (300,), (1,))),  # the larger dimension is the column
        ((200, 100), None, ((1,), (1,), (200, 100))),  # too small to factor
        ((200,), None, ((1,), (1,), (200,))),
        ((300, 200), (ROW, COLUMN), ((200,), (300,), (1,))),  # rank 2: the heuristic replaces the rule
        ((2, 3, 4), (NONE, NONE, NONE), ((1,), (1,), (2, 3, 4))),
        ((2, 3, 4), (ROW, COLUMN, COLUMN), ((2,), (3, 4), (1,))),
        ((2, 3), (BATCH, NONE), ((1,), (1,), (2, 3))),
    ],
)
def test_moments_have_the_shapes_of_the_rule(shape: tuple, rule: Any, shapes: tuple) -> None:
    optimizer = adafactor.Adafactor(factor_map=HParamMap([("w", rule)]) if rule else None)
    moments = optimizer.init_param_state(jnp.zeros(shape), "w")
    assert (moments.v_row.shape, moments.v_col.shape, moments.v.shape) == shapes
    assert moments.m.shape == (1,)


def test_axis_names_give_the_rules() -> None:
    optimizer = adafactor.Adafactor(logical_factor_rules=adafactor.standard_logical_factor_rules(), beta1=0.9)
    optimizer.set_param_axes(
        {
            "stacked": PartitionSpec("layers", "embed", "heads", "kv"),
            "norm": PartitionSpec("layers", "embed"),
            "bias": PartitionSpec("heads", "relpos_buckets"),
        }
    )
    assert optimizer.hyper_params.factor_map == {
        "stacked": (BATCH, ROW, COLUMN, COLUMN),
        "norm": (BATCH, NONE),
        "bias": (NONE, NONE),
    }


@pytest.mark.embedded("T5X compares definitions by identity")
def test_equal_settings_make_equal_definitions() -> None:
    # Two states can be combined only if their definitions are equal, because these are part of the tree's structure.
    assert adafactor.Adafactor(0.1) == adafactor.Adafactor(0.1)
    assert adafactor.Adafactor(0.1) != adafactor.Adafactor(0.2)
    assert hash(adafactor.Adafactor(0.1)) == hash(adafactor.Adafactor(0.1))


def test_frozen_parameters_stay_frozen() -> None:
    made = adafactor.Adafactor(0.1).create(flax.core.freeze({"a": {"w": jnp.ones(2)}}))
    made = made.apply_gradient(flax.core.freeze({"a": {"w": jnp.ones(2)}}))
    assert isinstance(made.target, flax.core.FrozenDict)
    assert isinstance(made.state.param_states, flax.core.FrozenDict)
    assert isinstance(made.optimizer_def, optimizers.OptimizerDef)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_names_of_factor_dimensions_are_those_of_gin_files(self) -> None:
        names = ("row", "col", "Column", "BATCH", "none", "unfactorized", ROW)
        assert [adafactor.factor_name_to_factordim(n) for n in names] == [ROW, COLUMN, COLUMN, BATCH, NONE, NONE, ROW]
        with pytest.raises(KeyError, match="'diagonal' is not a factor dimension"):
            adafactor.factor_name_to_factordim("diagonal")

    def test_a_map_gives_the_value_of_the_first_pattern_found(self) -> None:
        values = HParamMap([("bias$", 1), ("decoder", 2), (".*", 3)])
        tree = {"decoder": {"bias": 0, "kernel": 0}, "encoder": {"kernel": 0}}
        assert values(tree) == {"decoder": {"bias": 1, "kernel": 2}, "encoder": {"kernel": 3}}
        with pytest.raises(KeyError, match=r"No rule fits parameter 'encoder/x'. Patterns: 'bias\$'"):
            _ = HParamMap([("bias$", 1)])["encoder/x"]

    @pytest.mark.parametrize(
        ("build", "error", "message"),
        [
            (lambda: adafactor.Adafactor(factored=False, factor_map=HParamMap([])), ValueError, "factored=False"),
            (lambda: adafactor.Adafactor(factor_map={"a": 1}), TypeError, "factor_map must be an HParamMap, not dict"),
            (
                lambda: adafactor.Adafactor(multiply_by_parameter_scale=1),
                TypeError,
                "a bool or an HParamMap, not int",
            ),
            (
                lambda: adafactor.Adafactor().init_param_state(jnp.zeros((2, 3, 4)), "a/b"),
                ValueError,
                r"Parameter a/b has shape \(2, 3, 4\): a rank above 2 needs a factor rule",
            ),
            (
                lambda: adafactor.Adafactor(factor_map=HParamMap([("a", (ROW,))])).init_param_state(
                    jnp.zeros((2, 3)), "a/b"
                ),
                ValueError,
                r"Parameter a/b has shape \(2, 3\), rank 2, but its factor rule .* has 1 dimensions",
            ),
            (
                lambda: adafactor.Adafactor(logical_factor_rules={"x": ROW}).set_param_axes(
                    {"w": PartitionSpec("x", "y")}
                ),
                KeyError,
                "lack axis 'y' of parameter w",
            ),
            (
                lambda: adafactor.Adafactor(logical_factor_rules={"x": "row", "y": "col", "z": "none"}).set_param_axes(
                    {"w": PartitionSpec("x", "y", "z")}
                ),
                ValueError,
                "Parameter w is factored along rows and columns, so no axis can be NONE: x=ROW, y=COLUMN, z=NONE",
            ),
            (
                lambda: adafactor.Adafactor().create({"w": jnp.ones(2)}).apply_gradient({"w": jnp.ones(2)}),
                ValueError,
                "no learning rate",
            ),
        ],
    )
    def test_mistakes_are_named(self, build: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            build()
