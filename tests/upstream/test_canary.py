"""A private name that is gone is reported with its library and release."""

from __future__ import annotations

import importlib.metadata

import pytest
from canary import canary

gin = pytest.importorskip("gin")

from t5x_harness.upstream.gin import bound_values, file_readers  # noqa: E402


def test_the_release_and_the_name_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(gin.config, "_FILE_READERS")
    with pytest.raises(pytest.fail.Exception) as failed:
        canary("gin-config")(lambda: print(gin.config._FILE_READERS))()
    version = importlib.metadata.version("gin-config")
    assert str(failed.value) == (
        f"gin-config {version} differs from what t5x_harness/upstream/ expects: AttributeError: "
        "module 'gin.config' has no attribute '_FILE_READERS'"
    )


@canary("gin-config")
def test_gin_keeps_a_config_and_its_readers_where_they_are_read() -> None:
    gin.parse_config("NUMBER = 3")
    try:
        assert bound_values()["NUMBER", "gin.macro"] == {"value": 3}
        readers = list(file_readers())
        gin.config.register_file_reader(str.upper, str.isupper)
        assert (str.upper, str.isupper) in file_readers()
        file_readers()[:] = readers
    finally:
        gin.clear_config()
