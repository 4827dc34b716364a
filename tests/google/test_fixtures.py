"""The fixtures give each test a clean namespace, and fail it for faults that nobody met."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="the extra google is not installed")


def test_clean_and_strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_unmet(fake_gcs, gcs_tree):
            gcs_tree({"a/b": "text"})
            fake_gcs.fail(503, on="list")

        def test_clean(fake_gcs):
            assert fake_gcs._items("/storage/v1/b?project=p") == []
            assert fake_gcs.requests == []
            fake_gcs.reset(optional=True)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*no request met gcs.fail(503, on='list'); optional=True allows that*"])
