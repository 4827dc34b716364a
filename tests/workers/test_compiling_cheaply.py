"""XLA ends a process that is given an option it does not know, so each JAX gets those that its XLA has."""

import types

import pytest

from t5x_harness.runtime.compile_cache import compile_cheaply
from t5x_harness.upstream.jax import _await_others


@pytest.mark.parametrize(
    ("jaxlib", "preset", "emitters"),
    [("0.9.2", False, False), ("0.10.2", True, True), ("0.11.2", True, False), ("0.12.0.1", True, False)],
)
def test_options_are_those_of_the_installed_xla(
    monkeypatch: pytest.MonkeyPatch, jaxlib: str, preset: bool, emitters: bool
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: jaxlib)
    environment = {"XLA_FLAGS": "--xla_dump_to=/x"}
    compile_cheaply(environment)
    flags = environment["XLA_FLAGS"]
    assert flags.startswith("--xla_dump_to=/x --xla_backend_optimization_level=0 ")
    assert ("--xla_cpu_opt_preset=" in flags, "--xla_cpu_use_fusion_emitters=" in flags) == (preset, emitters)


@pytest.mark.parametrize("has_callbacks", [False, True], ids=["0.10", "0.11"])
def test_the_reader_of_the_cache_gets_what_it_takes(has_callbacks: bool) -> None:
    read = []

    def old(module_name, cache_key, options, backend, devices):  # type: ignore[no-untyped-def]
        read.append((module_name, cache_key))
        return "found", 1

    def new(module_name, cache_key, options, backend, devices, host_callbacks):  # type: ignore[no-untyped-def]
        read.append((module_name, cache_key, host_callbacks))
        return "found", 1

    compiler = types.ModuleType("compiler")
    compiler.__dict__.update(
        _cache_read=new if has_callbacks else old,
        _compile_and_write_cache=lambda *arguments: "compiled",
        distributed=types.SimpleNamespace(global_state=types.SimpleNamespace(process_id=0)),
    )
    _await_others(compiler)
    found = compiler._compile_and_write_cache("backend", "module", (), "options", ("callback",), "jit_f", "jit_f-0a1b")
    assert found == "found"
    assert read == [("jit_f", "jit_f-0a1b", ("callback",)) if has_callbacks else ("jit_f", "jit_f-0a1b")]
