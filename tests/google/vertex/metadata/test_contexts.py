"""Contexts: their members and children, and how deleted nodes affect them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from metadata_names import NUMBERED, STORE

Call = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


def associate(call: Call, context: Any, *nodes: Any) -> None:
    """Puts nodes into a context."""
    parts: dict[str, list[str]] = {"artifacts": [], "executions": []}
    for node in nodes:
        parts[node.name.split("/")[-2]].append(node.name)
    call("MetadataService.AddContextArtifactsAndExecutions", context=context.name, **parts)


def nest(call: Call, parent: Any, *children: Any) -> None:
    """Makes contexts children of another."""
    call("MetadataService.AddContextChildren", context=parent.name, child_contexts=[c.name for c in children])


def parents(call: Call, context: Any) -> list[str]:
    """The ids of a context's parents."""
    found = call("MetadataService.GetContext", name=context.name).parent_contexts
    return [name.rpartition("/")[2] for name in found]


def test_nodes_are_found_by_the_context_that_they_are_in(call: Call, create: Call, names: Call) -> None:
    run, other = create("Context", "run"), create("Context", "other")
    model, data, step = create("Artifact", "model"), create("Artifact", "data"), create("Execution", "step")
    associate(call, run, model, step)
    associate(call, run, model)  # again: it is skipped
    associate(call, other, data)
    in_run = f'in_context("{STORE}/contexts/run")'
    assert names("Artifact", in_run) == ["model"]
    assert names("Execution", in_run) == ["step"]
    assert names("Artifact", f'{in_run} OR in_context("{other.name}")') == ["model", "data"]
    assert names("Artifact", f"NOT {in_run}") == ["data"]


@pytest.mark.usefixtures("call")
def test_a_member_that_is_not_there_adds_nothing(create: Call, names: Call, refused: Refused) -> None:
    run, model = create("Context", "run"), create("Artifact", "model")
    ask = {"context": run.name, "artifacts": [model.name, f"{STORE}/artifacts/gone"]}
    assert refused("MetadataService.AddContextArtifactsAndExecutions", **ask)[0] == "NOT_FOUND"
    assert names("Artifact", f'in_context("{run.name}")') == []


def test_a_deleted_node_is_in_no_context_when_it_is_made_again(call: Call, create: Call, names: Call) -> None:
    run, model = create("Context", "run"), create("Artifact", "model")
    associate(call, run, model)
    call("MetadataService.DeleteArtifact", name=model.name)
    create("Artifact", "model")
    assert names("Artifact", f'in_context("{run.name}")') == []
    associate(call, run, model)
    call("MetadataService.DeleteContext", name=run.name)
    create("Context", "run")
    assert names("Artifact", f'in_context("{run.name}")') == []
    assert names("Artifact") == ["model"]


def test_contexts_are_found_by_parents_and_by_children(call: Call, create: Call, names: Call) -> None:
    experiment, first, second = (create("Context", name) for name in ("experiment", "first", "second"))
    nest(call, experiment, first, second)
    nest(call, experiment, first)  # again: it is skipped
    assert names("Context", f'parent_contexts:"{experiment.name}"') == ["first", "second"]
    assert names("Context", f'child_contexts:"{first.name}"') == ["experiment"]
    assert names("Context", 'child_contexts:"*"') == ["experiment"]
    assert parents(call, first) == ["experiment"]
    ask = {"context": experiment.name, "child_contexts": [first.name, first.name]}
    call("MetadataService.RemoveContextChildren", **ask)
    assert names("Context", f'parent_contexts:"{experiment.name}"') == ["second"]
    assert names("Context", f'child_contexts:"{first.name}"') == []
    assert parents(call, first) == []


def test_nesting_leaves_etags_as_they_are(call: Call, create: Call) -> None:
    experiment, run = create("Context", "experiment"), create("Context", "run", metadata={"a": 1})
    nest(call, experiment, run)
    run.metadata["a"] = 2
    changed = call("MetadataService.UpdateContext", context=run)
    assert changed.metadata["a"] == 2
    assert list(changed.parent_contexts) == [experiment.name]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cycle_is_refused(length: int, call: Call, create: Call, refused: Refused) -> None:
    chain = [create("Context", f"level-{level}") for level in range(length)]
    for above, below in itertools.pairwise(chain):
        nest(call, above, below)
    ask = {"context": chain[-1].name, "child_contexts": [chain[0].name]}
    assert refused("MetadataService.AddContextChildren", **ask) == (
        "INVALID_ARGUMENT",
        f"Context {NUMBERED}/contexts/level-0 cannot be a child of {NUMBERED}/contexts/level-{length - 1}: "
        "the contexts would form a cycle",
    )


def test_a_context_has_ten_parents_at_most_and_a_refusal_adds_no_child(
    call: Call, create: Call, refused: Refused
) -> None:
    full, free = create("Context", "full"), create("Context", "free")
    for number in range(10):
        nest(call, create("Context", f"parent-{number}"), full)
    last = create("Context", "last")
    ask = {"context": last.name, "child_contexts": [free.name, full.name]}
    assert refused("MetadataService.AddContextChildren", **ask) == (
        "INVALID_ARGUMENT",
        f"Context {full.name} has 10 parents; at most 10 are allowed",
    )
    assert parents(call, free) == []
    nest(call, create("Context", "root"), free)


def test_a_deleted_context_is_nobodys_parent_or_child(call: Call, create: Call, names: Call) -> None:
    top, middle, bottom = (create("Context", name) for name in ("top", "middle", "bottom"))
    nest(call, top, middle)
    nest(call, middle, bottom)
    call("MetadataService.DeleteContext", name=middle.name)
    assert parents(call, bottom) == []
    assert names("Context", f'child_contexts:"{middle.name}"') == []
    create("Context", "middle")
    assert names("Context", 'child_contexts:"*"') == []


@pytest.mark.parametrize(
    ("noun", "text", "told"),
    [
        ("Context", 'in_context("x")', "in_context takes the full name of one context, and is for artifacts"),
        ("Artifact", "in_context()", "in_context takes the full name of one context"),
        ("Context", 'child_contexts = "x"', "child_contexts can be compared only with `:`"),
        ("Context", 'nowhere = "x"', "there is no field nowhere"),
    ],
)
def test_a_filter_that_cannot_be_judged_is_told(
    noun: str, text: str, told: str, create: Call, refused: Refused
) -> None:
    create(noun, "first")
    code, message = refused(f"MetadataService.List{noun}s", parent=STORE, filter=text)
    assert code == "INVALID_ARGUMENT"
    assert told in message
