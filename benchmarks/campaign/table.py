"""The outcome of a campaign as a table, by class of mistake, and the list of what is not right."""

from collections.abc import Iterator, Sequence

from .judging import Judgment

COLUMNS = ("class", "mutants", "wasted", "caught", "before train", "right place", "fine", "false alarms")
COLUMNS_OF_OTHERS = ("no effect or constant", "noted", "own failures", "hangs", "cut off")


def rows(judgments: Sequence[Judgment]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each class and one for all, in the order of the columns."""
    groups = sorted({judgment.mutant.group for judgment in judgments})
    for group in (*groups, ""):
        some = [each for each in judgments if not group or each.mutant.group == group]
        wasted = [each for each in some if each.verdict.ending.is_failure]
        fine = [each for each in some if each.is_fine]
        same = [each for each in some if each.is_silent]
        yield (
            group or "all",
            str(len(some)),
            str(len(wasted)),
            *(_share([getattr(each, name) for each in wasted]) for name in ("is_caught", "is_early", "is_placed")),
            str(len(fine)),
            _share([each.is_false_alarm for each in fine]),
            str(len(same)),
            _share([each.is_noted for each in same]),
            str(sum(each.is_own_failure for each in some)),
            str(sum(each.hangs for each in some)),
            str(sum(each.verdict.ending == "cut off" for each in some)),
        )


def text(judgments: Sequence[Judgment]) -> str:
    """Returns the table as Markdown."""
    columns = (*COLUMNS, *COLUMNS_OF_OTHERS)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows(judgments)])


def survivors(judgments: Sequence[Judgment]) -> Iterator[tuple[str, Judgment]]:
    """Yields every mutant that is not judged rightly, with what is wrong."""
    for each in judgments:
        if each.is_own_failure:
            yield "own failure", each
        elif each.hangs:
            yield "hang", each
        elif each.verdict.ending.is_failure and not each.is_caught:
            yield "not caught", each
        elif each.verdict.ending.is_failure and not each.is_early:
            yield "late or without a cause", each
        elif each.verdict.ending.is_failure and not each.is_placed:
            yield "another place", each
        elif each.is_false_alarm:
            yield "false alarm", each
        elif each.is_silent and not each.is_noted:
            yield "no note", each


def _share(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} ({100 * sum(hits) / len(hits):.0f} %)" if hits else "-"
