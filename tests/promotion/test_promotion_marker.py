"""The marker ``tpu``: the ``-m`` expressions that promote, its valid arguments, and its inertness otherwise."""

import re
from typing import Any

import pytest

from t5x_harness.promotion.marker import ResourcesError, TpuResources, merged, promotes, seconds_of

PROMOTING = [
    "tpu",
    "(tpu)",
    "tpu and not slow",
    "not slow and tpu",
    "tpu and smoke",
    "tpu and (smoke or nightly)",
    "(tpu and a) or (b and tpu)",
    "not (slow or not tpu)",
    "tpu and tpu(region='europe-west4')",
    "tpu(region='europe-west4')",
    "tpu(steps=8) and not slow",
    "tpu and a and b and c and d and e and f and g and h and i and j and k and l",
]
OTHERS = [
    "",
    "smoke",
    "not smoke",
    "smoke or tpu",
    "tpu or smoke",
    "not tpu",
    "not (tpu and slow)",
    "slow",
    "tpu or not tpu",
    "tpu and not tpu",
    "not tpu(region='europe-west4')",
    "tputest",
    "my_tpu and smoke",
    "smoke and not tpu",
    "tpu or (a and b)",
]


@pytest.mark.parametrize("expression", [*PROMOTING, *OTHERS])
def test_what_promotes(expression: str) -> None:
    assert promotes(expression) is (expression in PROMOTING)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accelerator_typ": "TPU_V3"}, "no argument 'accelerator_typ': did you mean accelerator_type?"),
        ({"zone": "a"}, "no argument 'zone': there are accelerator_type, accelerator_count, machine_type, "),
        ({"accelerator_count": "8"}, "accelerator_count has to be a whole number from 1 to 2147483647, not '8'"),
        ({"accelerator_count": True}, "accelerator_count has to be a whole number from 1 to 2147483647, not True"),
        ({"steps": 0}, "steps has to be a whole number from 1 to 2147483647, not 0"),
        ({"machine_type": ""}, "machine_type has to be text on one line, not ''"),
        ({"full_size": "yes"}, "full_size has to be True or False, not 'yes'"),
        ({"files": "data/*.tsv"}, "files has to be a list of globs, not 'data/*.tsv'"),
        ({"timeout": "soon"}, "timeout: give a time above zero, as 90s, 30m, 2h or a number of seconds; not 'soon'"),
        (
            {"accelerator_count": 8, "tpu_topology": "2x4"},
            "accelerator_count=8 and tpu_topology='2x4' both say how many chips: cloud-tpu machines take the first",
        ),
        ({"strategy": "flex-start"}, "strategy 'flex-start': did you mean FLEX_START?"),
        ({"strategy": "SPOT", "max_wait_duration": "2h"}, "max_wait_duration is how long a job with the strategy FLEX"),
        ({"max_wait_duration": "soon"}, "max_wait_duration: give a time above zero, as 90s, 30m, 2h or a number"),
        ({"reservation": "mine"}, "reservation 'mine': give any, none, or projects/PROJECT/zones/ZONE/reservations/"),
        ({"network": "vpc"}, "network 'vpc': give projects/NUMBER/global/networks/NAME"),
        ({"env": ["A=1"]}, "env has to be a dict of texts, not ['A=1']"),
        ({"env": {"A": 1}}, "env has to be a dict of texts, not {'A': 1}"),
        ({"labels": "a"}, "labels has to be a dict of texts, not 'a'"),
        ({"disable_retries": 1}, "disable_retries has to be True or False, not 1"),
        ({"boot_disk_size_gb": 0.5}, "boot_disk_size_gb has to be a whole number from 1 to 2147483647, not 0.5"),
        ({"ship": True, "steps": 8}, "steps=8 is for the config of a test that calls t5x_run; one with ship=True runs"),
        ({"ship": True, "full_size": False}, "full_size=False is for the config of a test that calls t5x_run; one "),
    ],
)
def test_an_argument_that_cannot_be_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ResourcesError, match=f"^{re.escape(message)}"):
        TpuResources.of(arguments)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172800), (7, 7)])
def test_times_are_read(text: str | float, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert TpuResources(timeout=text).seconds == seconds


@pytest.mark.parametrize("text", ["", "0s", "-3", "3 weeks", 0, -1, True, float("inf"), float("nan")])
def test_what_is_no_time_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="give a time above zero"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("near", "machine"),
    [
        ({"steps": 8}, {"accelerator_type": "TPU_V3", "accelerator_count": 32}),
        ({"accelerator_count": 8}, {"accelerator_type": "TPU_V3", "accelerator_count": 8}),
        ({"machine_type": "ct5lp-hightpu-4t"}, {"machine_type": "ct5lp-hightpu-4t"}),
        ({"accelerator_type": "TPU_V2"}, {"accelerator_type": "TPU_V2"}),
    ],
)
def test_the_closest_place_says_most_and_machines_are_not_mixed(near: dict[str, Any], machine: dict[str, Any]) -> None:
    far = {"accelerator_type": "TPU_V3", "accelerator_count": 32, "region": "us-central1", "steps": 2}
    assert merged([near, far]) == {**machine, "steps": near.get("steps", 2), "region": "us-central1"}


def test_a_shipped_test_takes_no_sizes_of_farther_places_and_refuses_those_of_closer_ones() -> None:
    sizes = {"steps": 8, "full_size": True}
    assert merged([{"ship": True}, sizes, {"region": "us-central1"}]) == {"ship": True, "region": "us-central1"}
    assert merged([{"ship": False}, sizes]) == {"ship": False, **sizes}
    layers = [{"env": {"A": "1"}}, {"env": {"A": "2", "B": "2"}, "strategy": "SPOT"}]
    assert merged(layers) == {"env": {"A": "1", "B": "2"}, "strategy": "SPOT"}
    with pytest.raises(ResourcesError, match="steps=8 is for the config of a test that calls t5x_run"):
        TpuResources.of(merged([sizes, {"ship": True}]))


def test_the_marker_is_documented_with_every_argument(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    first, last = "accelerator_type=None, accelerator_count=None, machine_type=None", "disable_retries=None"
    result.stdout.fnmatch_lines([f"@pytest.mark.tpu({first}, *ship=False, files=(), *{last}): *"])


@pytest.mark.parametrize("expression", ["", "smoke", "smoke or tpu", "not slow"])
def test_it_is_inert_where_it_does_not_promote(pytester: pytest.Pytester, expression: str) -> None:
    """A shipped test runs locally, and no target is required."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.smoke
        @pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True)
        def test_it(request):
            from t5x_harness.plugin import marks
            marks.count(request.node, marks.EXERCISED, 1)
        """
    )
    pytester.makeini("[pytest]\nmarkers = slow")
    result = pytester.runpytest_subprocess("--strict-markers", "-m", expression)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*to jobs on*")
