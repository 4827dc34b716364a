"""GIN23: comments that say something else than the value beside them."""

from __future__ import annotations

import math
import re
import tokenize
from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.statement_text import statement_at
from t5x_harness.spec import Severity

_NUMBER = r"\d[\d_]*"
_KIND = r"(?:pre-?train\w*|fine-?tun\w*)"
_STEPS = rf"{_NUMBER}(?: (?:steps )?(?:of |for )?{_KIND}(?: steps)?)?"
_SUM = re.compile(rf"{_STEPS}(?: (?:\+|and) {_STEPS})+")
_PRODUCTS = re.compile(rf"{_NUMBER}(?:\s*[*+]\s*{_NUMBER})+")

# What T5X's own files say beside None; it is often left behind when the value is changed.
_OF_NONE: Mapping[str, str] = {
    "keep": r"keep all( checkpoints)?",
    "seed": r"use a new seed each run(/restart)?",
    "num_examples": r"use all examples( in the (infer_eval )?dataset)?",
}
_HEAD = examples.head("finetune", "from t5x import utils")


GIN23 = Mistake(
    "GIN23",
    "comment that contradicts its value",
    severity=Severity.WARNING,
    why=(
        "Gin reads no comments: with `TRAIN_STEPS = 2_680_000  # 2_650_000 + 50_000` the run ends after 30000 steps. "
        "Only sums and products of plain numbers are compared, and what T5X's own files say beside None."
    ),
    bad=Example(_HEAD + "TRAIN_STEPS = 2_680_000  # 2_650_000 + 50_000\n", at="TRAIN_STEPS"),
    good=Example(_HEAD + "TRAIN_STEPS = 2_700_000  # 2_650_000 + 50_000\n"),
)


@finds(GIN23)
def stale_comment(context: Context) -> Iterator[Found]:
    """Finds each comment of the user's whose arithmetic does not match the value, or that is about another value."""
    for statement in context.program.final.values():
        if not isinstance(statement.value, int) or isinstance(statement.value, bool):
            continue
        comment = _comment(context, statement)
        if not comment:
            continue
        claimed = _result(comment, of_steps="steps" in str(statement).lower())
        if claimed is not None and claimed != statement.value:
            yield Found(
                f"{statement} = {statement.value}, and the comment beside it comes to {claimed} ({comment})",
                statement,
                f"write {statement} = {claimed:_}, or correct the comment",
            )
        elif _says_none(statement, comment):
            yield Found(
                f"{statement} = {format_value(statement.value)}, and the comment beside it says {comment!r}",
                statement,
                f"write {statement} = None, or remove the comment",
            )


def _comment(context: Context, statement: Binding | MacroBinding) -> str:
    """Returns the comment behind a statement of the user's; empty for none."""
    text = statement_at(context.program, statement.location)
    comments = [token.string for token in text.tokens if token.type == tokenize.COMMENT] if text is not None else []
    return comments[0].lstrip("# ").rstrip(" .") if len(comments) == 1 else ""


def _result(comment: str, *, of_steps: bool) -> int | None:
    """Returns the result of a comment's arithmetic; None if the comment has more or less than that."""
    if _PRODUCTS.fullmatch(comment):
        return sum(math.prod(map(int, product.split("*"))) for product in comment.split("+"))
    if of_steps and _SUM.fullmatch(comment):
        return sum(map(int, re.findall(_NUMBER, comment)))
    return None


def _says_none(statement: Binding | MacroBinding, comment: str) -> bool:
    name = str(statement).rpartition(".")[2].lower()
    return any(
        (name == key or name.endswith(f"_{key}")) and re.fullmatch(words, comment.lower())
        for key, words in _OF_NONE.items()
    )
