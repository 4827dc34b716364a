"""Bindings of a job are read here as T5X reads them there."""

from __future__ import annotations

import pytest

from t5x_harness.vertex.arguments import OverrideError, argument_of, normalized


@pytest.mark.parametrize(
    ("given", "binding", "argument"),
    [
        ("X = 5", "X = 5", "--gin.X=5"),
        ("--gin.X=5", "X = 5", "--gin.X=5"),
        ("--gin.--gin.X=5", "X = 5", "--gin.X=5"),
        ("--gin_bindings=X = 5", "X = 5", "--gin.X=5"),
        ("  MODEL_DIR='gs://b/c=d' ", "MODEL_DIR = 'gs://b/c=d'", "--gin.MODEL_DIR='gs://b/c=d'"),
        ("a/b.C.d=@e/f.G()", "a/b.C.d = @e/f.G()", "--gin.a/b.C.d=@e/f.G()"),
        ("L={'inputs': 8, 'targets': 4}", "L = {'inputs': 8, 'targets': 4}", "--gin.L={'inputs': 8, 'targets': 4}"),
        ("import my.tasks", "import my.tasks", "--gin_bindings=import my.tasks"),
        ("utils.X:\n  a = 1", "utils.X:\n  a = 1", "--gin_bindings=utils.X:\n  a = 1"),
    ],
)
def test_bindings_may_have_the_form_of_the_command_line(given: str, binding: str, argument: str) -> None:
    assert normalized([given]) == (binding,)
    assert argument_of(binding) == argument


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("--gin.EVALUATOR_NUM_EXAMPLES=500,", "it ends in a comma"),
        ("MODEL_DIR=gs://b/c", "a string needs quotes of its own: MODEL_DIR = 'gs://b/c'"),
        ("X='a", "a quote (') is missing"),
        ('X=\\"a\\"', "the backslashes are for a shell, and stay out of a binding"),
        ("X", "Couldn't parse statement, expected ':' or '='"),
        ("", "this binds nothing; a binding has the form NAME = VALUE"),
    ],
)
def test_what_gin_cannot_read_is_refused_with_the_reason(given: str, reason: str) -> None:
    with pytest.raises(OverrideError) as caught:
        normalized(["Y = 1", given])
    assert str(caught.value).startswith(f"{given}: ")
    assert str(caught.value).endswith(reason)
