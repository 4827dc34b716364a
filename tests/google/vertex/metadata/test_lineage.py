"""Contexts with their members and children, and lineage: which nodes were made from which."""

import itertools
from typing import Any

import pytest
from api_calls import NUMBERED_STORE, STORE, Call, Refused


def associate(call: Call, context: Any, *nodes: Any) -> None:
    """Puts nodes into a context."""
    parts: dict[str, list[str]] = {"artifacts": [], "executions": []}
    for node in nodes:
        parts[node.name.split("/")[-2]].append(node.name)
    call("MetadataService.AddContextArtifactsAndExecutions", context=context.name, **parts)


def nest(call: Call, parent: Any, *children: Any) -> None:
    """Makes contexts children of another context."""
    call("MetadataService.AddContextChildren", context=parent.name, child_contexts=[c.name for c in children])


def parents(call: Call, context: Any) -> list[str]:
    """Returns the ids of a context's parents."""
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


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cycle_is_refused(length: int, call: Call, create: Call, refused: Refused) -> None:
    chain = [create("Context", f"level-{level}") for level in range(length)]
    for above, below in itertools.pairwise(chain):
        nest(call, above, below)
    ask = {"context": chain[-1].name, "child_contexts": [chain[0].name]}
    assert refused("MetadataService.AddContextChildren", **ask) == (
        "INVALID_ARGUMENT",
        f"Context {NUMBERED_STORE}/contexts/level-0 cannot be a child of {NUMBERED_STORE}/contexts/level-{length - 1}: "
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


def ids(nodes: Any) -> set[str]:
    """Returns the ids of nodes."""
    return {node.name.rpartition("/")[2] for node in nodes}


def edges(graph: Any) -> set[tuple[str, str, str]]:
    """Returns the events of a graph, each as its execution, type and artifact."""
    from google.cloud.aiplatform_v1.types import event

    kinds = event.Event.Type
    return {(e.execution.rpartition("/")[2], kinds(e.type_).name, e.artifact.rpartition("/")[2]) for e in graph.events}


def link(call: Call, execution: str, *, reads: str = "", makes: str = "") -> None:
    """Adds events of artifacts, whose names are separated by spaces."""
    events = [{"artifact": f"{STORE}/artifacts/{name}", "type_": "INPUT"} for name in reads.split()]
    events += [{"artifact": f"{STORE}/artifacts/{name}", "type_": "OUTPUT"} for name in makes.split()]
    call("MetadataService.AddExecutionEvents", execution=f"{STORE}/executions/{execution}", events=events)


@pytest.fixture
def pipeline(call: Call, create: Call) -> None:
    """Creates raw -> clean -> data -> train -> model -> export -> saved, and data -> look -> plot."""
    for name in ("raw", "data", "model", "saved", "plot", "alone"):
        create("Artifact", name, display_name=name)
    for name in ("clean", "train", "export", "look"):
        create("Execution", name)
    link(call, "clean", reads="raw", makes="data")
    link(call, "train", reads="data", makes="model")
    link(call, "export", reads="model", makes="saved")
    link(call, "look", reads="data", makes="plot")


@pytest.mark.usefixtures("pipeline")
def test_an_execution_tells_what_it_read_and_made(call: Call) -> None:
    link(call, "train", reads="model data")  # a second event between the same two is skipped
    graph = call("MetadataService.QueryExecutionInputsAndOutputs", execution=f"{STORE}/executions/train")
    assert ids(graph.executions) == {"train"}
    assert ids(graph.artifacts) == {"data", "model"}
    assert edges(graph) == {("train", "INPUT", "data"), ("train", "OUTPUT", "model")}
    first, second = graph.events
    assert first.artifact == f"{NUMBERED_STORE}/artifacts/data"
    assert first.execution == f"{NUMBERED_STORE}/executions/train"
    assert first.event_time.ToNanoseconds() < second.event_time.ToNanoseconds()


@pytest.mark.usefixtures("pipeline")
def test_events_that_cannot_be_are_refused_and_none_is_added(call: Call, refused: Refused) -> None:
    ask = {
        "execution": f"{STORE}/executions/look",
        "events": [
            {"artifact": f"{STORE}/artifacts/raw", "type_": "INPUT"},
            {"artifact": f"{STORE}/artifacts/saved"},
        ],
    }
    told = refused("MetadataService.AddExecutionEvents", **ask)
    assert told == (
        "INVALID_ARGUMENT",
        "List of found errors:\t1.Field: events[1].type; Message: it has to be INPUT or OUTPUT\t",
    )
    ask["events"][1] = {"artifact": f"{STORE}/artifacts/gone", "type_": "OUTPUT"}  # type: ignore[index]
    assert refused("MetadataService.AddExecutionEvents", **ask)[0] == "NOT_FOUND"
    graph = call("MetadataService.QueryExecutionInputsAndOutputs", execution=ask["execution"])
    assert ids(graph.artifacts) == {"data", "plot"}


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize(
    ("hops", "artifacts", "executions"),
    [
        (0, "raw data model saved plot", "clean train export look"),
        (1, "raw", "clean"),
        (2, "raw data", "clean"),
        (3, "raw data", "clean train look"),
        (4, "raw data model plot", "clean train look"),
        (9, "raw data model saved plot", "clean train export look"),
    ],
)
def test_an_artifact_tells_its_lineage_as_far_as_hops_lead(
    hops: int, artifacts: str, executions: str, call: Call
) -> None:
    graph = call("MetadataService.QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/raw", max_hops=hops)
    assert ids(graph.artifacts) == set(artifacts.split())
    assert ids(graph.executions) == set(executions.split())
    told = {(execution, artifact) for execution, _, artifact in edges(graph)}
    assert all(execution in executions and artifact in artifacts for execution, artifact in told)


@pytest.mark.usefixtures("pipeline")
def test_lineage_leads_back_as_well(call: Call) -> None:
    graph = call("MetadataService.QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/saved", max_hops=2)
    assert edges(graph) == {("export", "INPUT", "model"), ("export", "OUTPUT", "saved")}
    alone = call("MetadataService.QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/alone")
    assert (ids(alone.artifacts), len(alone.executions), len(alone.events)) == ({"alone"}, 0, 0)


@pytest.mark.usefixtures("pipeline")
def test_a_filter_cuts_lineage_off(call: Call, refused: Refused) -> None:
    ask = {"artifact": f"{STORE}/artifacts/raw", "filter": 'NOT display_name = "model"'}
    graph = call("MetadataService.QueryArtifactLineageSubgraph", **ask)
    assert ids(graph.artifacts) == {"raw", "data", "plot"}
    assert refused("MetadataService.QueryArtifactLineageSubgraph", artifact=ask["artifact"], max_hops=-1) == (
        "INVALID_ARGUMENT",
        "List of found errors:\t1.Field: max_hops; Message: -1 is negative\t",
    )


def test_more_than_a_thousand_nodes_are_not_told(call: Call, create: Call, refused: Refused) -> None:
    create("Execution", "wide")
    for number in range(1001):
        create("Artifact", f"part-{number}")
    link(call, "wide", makes=" ".join(f"part-{number}" for number in range(1001)))
    code, message = refused("MetadataService.QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/part-7")
    assert code == "FAILED_PRECONDITION"
    assert message == "The lineage has more than 1000 artifacts, executions or events; ask for fewer hops"


@pytest.mark.usefixtures("pipeline")
def test_a_context_tells_the_lineage_in_it(call: Call, create: Call) -> None:
    run, step = create("Context", "run"), f"{STORE}/executions/train"
    parts = [f"{STORE}/artifacts/{name}" for name in ("data", "alone")]
    ask = {"context": run.name, "artifacts": parts, "executions": [step]}
    call("MetadataService.AddContextArtifactsAndExecutions", **ask)
    graph = call("MetadataService.QueryContextLineageSubgraph", context=run.name)
    assert ids(graph.artifacts) == {"data", "alone"}
    assert ids(graph.executions) == {"train"}
    assert edges(graph) == {("train", "INPUT", "data")}


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize(("noun", "gone"), [("Artifact", "data"), ("Execution", "train")])
def test_a_deleted_node_takes_its_events_with_it(noun: str, gone: str, call: Call, create: Call) -> None:
    call(f"MetadataService.Delete{noun}", name=f"{STORE}/{noun.lower()}s/{gone}")
    create(noun, gone)
    graph = call("MetadataService.QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/model")
    assert gone not in ids(graph.artifacts) | ids(graph.executions)
    if noun == "Execution":
        graph = call("MetadataService.QueryExecutionInputsAndOutputs", execution=f"{STORE}/executions/train")
        assert not graph.events
