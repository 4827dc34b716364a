"""Facts about rivers, and paragraphs and questions built from them."""

import csv
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclasses.dataclass(frozen=True)
class River:
    """One row of ``data/rivers.tsv``; the length is in kilometers."""

    name: str
    length: int
    source: str
    mouth: str
    city: str


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that its context answers word for word."""

    question: str
    context: str
    answers: tuple[str, ...]


def rivers() -> tuple[River, ...]:
    """Returns all rivers, longest first."""
    with (DATA / "rivers.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return tuple(River(r["name"], int(r["length"]), r["source"], r["mouth"], r["city"]) for r in rows)


def paragraph(river: River) -> str:
    """Returns three sentences that state every fact about a river."""
    return (
        f"The {river.name} is {river.length} km long. It rises in {river.source} and flows into {river.mouth}. "
        f"{river.city} lies on its banks."
    )


def comparisons() -> Iterator[str]:
    """Yields a sentence for each river and the next shorter one."""
    ranked = rivers()
    for longer, shorter in itertools.pairwise(ranked):
        yield (
            f"From {longer.source} to {longer.mouth} the {longer.name} covers {longer.length} km, "
            f"{longer.length - shorter.length} km more than the {shorter.name}, on which {shorter.city} was built."
        )


def questions() -> Iterator[Question]:
    """Yields four questions for each river, which its paragraph answers."""
    for river in rivers():
        context = paragraph(river)
        yield Question(f"How long is the {river.name}?", context, (f"{river.length} km", f"{river.length}"))
        yield Question(f"Where does the {river.name} rise?", context, (river.source, f"in {river.source}"))
        yield Question(f"What does the {river.name} flow into?", context, (river.mouth,))
        yield Question(f"Which city lies on the {river.name}?", context, (river.city,))
