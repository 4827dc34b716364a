"""A pod that cannot be here is refused before any process starts, with what to do."""

import pytest

from t5x_harness.pods.start import HOST_BYTES, PodRefused, check_pod
from t5x_harness.slices.slice import get_slice

PLENTY = 1000 * HOST_BYTES


@pytest.mark.parametrize("name", ["v4-16", "v3-32", "v3-256"])
def test_two_to_thirty_two_hosts_may_start(name: str) -> None:
    check_pod(get_slice(name), PLENTY)


def test_a_slice_of_one_host_is_no_pod() -> None:
    with pytest.raises(PodRefused, match=r"^v3-8 has one host, so that there is no pod to emulate$") as raised:
        check_pod(get_slice("v3-8"), PLENTY)
    assert raised.value.fix == "name a slice of several hosts, such as v4-16, v5p-16, v4-32, or leave out the option"
    assert raised.value.code == "POD22"


def test_too_many_hosts() -> None:
    with pytest.raises(PodRefused, match=r"^v3-512 has 64 hosts, and a pod has at most 32 here$"):
        check_pod(get_slice("v3-512"), PLENTY)


def test_too_little_memory() -> None:
    text = r"^4 hosts of v3-32 need about 4 x 0\.\d GiB = \d\.\d GiB of memory, and \d\.\d GiB are free$"
    with pytest.raises(PodRefused, match=text) as raised:
        check_pod(get_slice("v3-32"), 3 * HOST_BYTES)
    assert raised.value.fix == "name a slice of at most 3 hosts, or free memory"
