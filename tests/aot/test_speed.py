"""Bounds of step times, the band of real runs, and prices."""

import re

import pytest

from t5x_harness.aot.costs import Collective, DeviceCosts
from t5x_harness.aot.speed import BAND_NAME, PRICES, REPORTED_UTILIZATION, Span, estimate, price_of, step_time
from t5x_harness.slices.slice import GENERATIONS, get_slice


def costs(flops: float = 0, hbm: float = 0, sent: float = 0) -> DeviceCosts:
    collective = Collective("all-reduce", "data", 1, int(sent), int(sent))
    return DeviceCosts(int(flops), int(flops), int(hbm), (collective,) if sent else (), (), ())


@pytest.mark.parametrize(
    ("name", "did", "seconds", "limit"),
    [  # a v3 device is half of a chip
        ("v3-8", costs(flops=123e12 / 2, hbm=45e9), 1.0, "flops"),
        ("v3-8", costs(flops=1e12, hbm=900e9), 2.0, "hbm"),
        ("v4-8", costs(flops=275e12, sent=1e15), 1.0, "flops"),  # no source has a figure for its links
        ("v5e-16", costs(flops=197e12, sent=600e9), 3.0, "ici"),
        ("v6e-8", costs(hbm=2 * 1638e9), 2.0, "hbm"),
    ],
)
def test_the_slowest_part_bounds_a_step(name: str, did: DeviceCosts, seconds: float, limit: str) -> None:
    time = step_time(did, get_slice(name).generation)
    assert (time.seconds.bound, time.limit) == (pytest.approx(seconds), limit)


def test_the_band_is_of_operations_and_never_below_the_bound() -> None:
    low, high = REPORTED_UTILIZATION
    time = step_time(costs(flops=197e12, hbm=819e9 * 3), get_slice("v5e-8").generation)
    assert time.seconds == Span(3.0, max(3.0, 1 / high), 1 / low)
    assert BAND_NAME.startswith("25% to 45% of the peak")


def t5_11b_flops(inputs: int, targets: int) -> int:
    """Returns the operations of one example's training step, counting only products, for T5 11B's first release."""
    width, hidden, layers, attention, vocabulary = 1024, 65536, 24, 128 * 128, 32128
    layer = 4 * width * attention + 2 * width * hidden
    encoder = layers * (layer + 2 * width * attention) * inputs  # with keys and values for the decoder
    decoder = layers * (layer + 2 * width * attention) * targets + width * vocabulary * targets
    scores = layers * 2 * attention * (inputs * inputs + targets * targets + inputs * targets)
    return 3 * 2 * (encoder + decoder + scores)


@pytest.mark.parametrize(
    ("name", "inputs", "targets", "examples_per_second"),
    [("v3-128", 512, 512, 86), ("v3-512", 512, 114, 381), ("v3-1024", 512, 114, 1100)],
)
def test_reported_runs_lie_in_the_band(name: str, inputs: int, targets: int, examples_per_second: int) -> None:
    """Issue 282 of text-to-text-transfer-transformer reports these examples per second for T5 11B."""
    where = get_slice(name)
    on_device = t5_11b_flops(inputs, targets) // where.num_devices  # of one example
    seconds = step_time(costs(flops=on_device), where.generation).seconds
    assert seconds.bound < seconds.best <= 1 / examples_per_second <= seconds.worst


def test_steps_have_hours_chip_hours_and_a_price() -> None:
    where = get_slice("v3-32")
    time = step_time(costs(flops=0.25 * 123e12 / 2), where.generation)
    found = estimate(time, where, 14_400, 1000, price_of(where))
    assert (found.step_seconds.bound, found.step_seconds.worst) == (0.25, 1.0)
    assert (found.tokens_per_second.bound, found.tokens_per_second.worst) == (4000, 1000)
    assert (found.hours.bound, found.hours.worst) == (1.0, 4.0)
    assert (found.chip_hours.bound, found.chip_hours.worst) == (16.0, 64.0)
    assert (found.usd.bound, found.usd.worst) == (32.0, 128.0)


def test_a_price_without_source_is_none() -> None:
    where = get_slice("v3-8")
    found = estimate(step_time(costs(flops=1e12), where.generation), where, 1, 1, None)
    assert (found.usd, found.price) == (None, None)


def test_prices_say_where_and_when() -> None:
    assert str(price_of(get_slice("v5e-16"))) == (
        "1.2 USD per chip-hour (us-central1, us-east1, https://cloud.google.com/tpu/pricing, 2026-09-17)"
    )
    assert str(price_of(get_slice("v3-8"))) == (
        "2 USD per chip-hour (us-central1, us-east1, Google's billing catalog, as SkyPilot's catalog v8 has it, "
        "no date known)"
    )
    assert all(price.date == "" or re.fullmatch(r"\d{4}-\d\d-\d\d", price.date) for price in PRICES.values())
    assert set(PRICES) <= {generation.name for generation in GENERATIONS}


def test_slices_of_several_hosts_may_cost_more() -> None:
    assert [price_of(get_slice(name)).usd for name in ("v2-8", "v2-32")] == [1.125, 1.5]


def test_the_users_own_price_comes_first() -> None:
    own = price_of(get_slice("v2-32"), {"v2": 0.4})
    assert (own.usd, str(own)) == (0.4, "0.4 USD per chip-hour ([tool.t5x_harness.prices])")
    assert price_of(get_slice("v3-32"), {"v2": 0.4}) == PRICES["v3"]
