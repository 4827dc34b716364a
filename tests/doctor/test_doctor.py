"""The doctor finds each clash, names its fix, and reports nothing if all is well."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.commands.doctor import as_json, as_table
from t5x_harness.doctor import CHECKS, diagnose
from t5x_harness.doctor.check import Defect, Environment, Installed, required
from t5x_harness.doctor.versions import RIVALS
from t5x_harness.runtime.choice import Runtime
from t5x_harness.spec import Severity

EMBEDDED = Runtime("embedded", "0.1.0", "/lib/t5x_harness/embedded/t5x", "no T5X is installed")
INSTALLED = Runtime("installed", "0.0.0, commit cc342d419ec3", "/src/t5x/t5x", "editable install")

# A set that works: the versions that behavior was recorded with, and the packages below them.
CLEAN = {
    "jax": ("0.10.2", ["jaxlib<=0.10.2,>=0.10.2", "numpy>=2.0", "jax-cuda>=1; extra == 'cuda'"]),
    "jaxlib": ("0.10.2", ["numpy>=2.0"]),
    "flax": ("0.12.8", ["jax>=0.10.0"]),
    "optax": ("0.2.8", ["jax>=0.5"]),
    "orbax-checkpoint": ("0.12.8", []),
    "clu": ("0.0.12", []),
    "seqio": ("0.0.20", ["tensorflow-text", "jax"]),
    "tensorflow-datasets": ("4.9.10", []),
    "tensorflow": ("2.21.0", ["protobuf<8,>=6.31", "numpy>=1.26"]),
    "tensorflow-text": ("2.21.1", ["tensorflow<2.22,>=2.21"]),
    "sentencepiece": ("0.2.1", []),
    "sacrebleu": ("2.6.0", []),
    "numpy": ("2.4.6", []),
    "protobuf": ("7.36.2", []),
    "t5": ("0.9.4", ["seqio-nightly", "tfds-nightly", "tensorflow-text"]),
}
RECORDED = tuple(
    f"{requirement}; extra == 't5x'"
    for requirement in (
        "jax<0.11,>=0.10.2", "flax<0.13,>=0.12.8", "optax<0.3,>=0.2.8", "orbax-checkpoint<0.13,>=0.12.8",
        "clu<0.1,>=0.0.12", "seqio==0.0.20", "tensorflow-datasets<5,>=4.9.10", "tensorflow<2.22,>=2.21",
        "tensorflow-text<2.22,>=2.21", "sentencepiece<0.3,>=0.2.1", "sacrebleu<3,>=2.6",
    )
)  # fmt: skip
Metadata = dict[str, tuple[str, list[str]]]


def write(folder: Path, metadata: Metadata) -> None:
    """Writes distributions' metadata into a folder, as an installer does."""
    for name, (version, requires) in metadata.items():
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = [f"Requires-Dist: {r}" for r in requires]
        (info / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        )


def environment(metadata: Metadata, runtime: Runtime = EMBEDDED) -> Environment:
    """Returns an environment with this metadata, without a file system."""
    found = tuple(Installed(name, version, "/lib", tuple(r)) for name, (version, r) in metadata.items())
    return Environment(found, runtime, recorded=RECORDED)


def read(*folders: Path, runtime: Runtime = EMBEDDED) -> Environment:
    """Returns the environment of folders on the import path."""
    return Environment.read([str(f) for f in folders], runtime, {}, RECORDED)


def findings(environment_: Environment) -> dict[str, tuple[Defect, ...]]:
    return {d.code: d.findings for d in diagnose(environment_) if d.findings}


def only(environment_: Environment, code: str) -> Defect:
    found = findings(environment_)
    assert list(found) == [code], found
    [finding] = found[code]
    return finding


def test_a_set_that_works_is_quiet(tmp_path: Path) -> None:
    write(tmp_path, CLEAN)
    clean = read(tmp_path)
    assert {d.name for d in clean.distributions} == set(CLEAN)
    assert findings(clean) == {}
    assert {d.status for d in diagnose(clean)} == {"ok"}


@pytest.mark.parametrize(("kept", "rival"), RIVALS)
def test_both_of_a_pair_are_found_with_who_asked_for_the_rival(tmp_path: Path, kept: str, rival: str) -> None:
    [recorded] = [text.partition(";")[0] for text in RECORDED if re.match(rf"{kept}[<=]", text)]
    write(tmp_path, {**CLEAN, rival: (CLEAN[kept][0], [])})
    finding = only(read(tmp_path), "ENV01")
    assert finding.severity == "error"
    assert finding.message.startswith(f"{kept} {CLEAN[kept][0]} and {rival} {CLEAN[kept][0]} are both installed")
    uninstall = f"python -m pip uninstall -y {rival} {kept}"
    assert finding.fix.startswith(f"{uninstall} && python -m pip install --no-deps '{recorded}'")
    if rival in ("seqio-nightly", "tfds-nightly"):
        assert f"(t5 0.9.4 requires {rival})" in finding.message
        assert "pip install --no-deps t5==0.9.4" in finding.fix


def test_a_rival_alone_is_a_warning() -> None:
    alone = {n: v for n, v in CLEAN.items() if n != "tensorflow"} | {"tensorflow-cpu": ("2.21.0", [])}
    finding = only(environment(alone), "ENV01")
    assert finding.severity == "warning"
    assert finding.message.startswith("tensorflow-cpu 2.21.0 stands in for tensorflow;")


def test_the_placeholder_is_known_by_its_contents(tmp_path: Path) -> None:
    write(tmp_path / "placeholder", {**CLEAN, "t5x": ("0.0.0", [])})
    finding = only(read(tmp_path / "placeholder"), "ENV05")
    assert finding.message == f"t5x 0.0.0 in {tmp_path}/placeholder is PyPI's placeholder and holds no T5X"
    assert finding.fix.startswith("python -m pip uninstall -y t5x;")

    # T5X itself has the same version.
    write(tmp_path / "real", {**CLEAN, "t5x": ("0.0.0", [])})
    (tmp_path / "real" / "t5x").mkdir()
    assert findings(read(tmp_path / "real", runtime=INSTALLED)) == {}


@pytest.mark.parametrize(
    ("changed", "version", "asking", "asked"),
    [
        ("jaxlib", "0.9.0", "jax 0.10.2", "jaxlib<=0.10.2,>=0.10.2"),
        ("protobuf", "5.29.0", "tensorflow 2.21.0", "protobuf<8,>=6.31"),
        ("numpy", "1.26.4", "jax 0.10.2", "numpy>=2.0"),
    ],
)
def test_versions_that_refuse_each_other_are_found(changed: str, version: str, asking: str, asked: str) -> None:
    found = findings(environment({**CLEAN, changed: (version, CLEAN[changed][1])}))
    assert list(found) == ["ENV03"]
    assert found["ENV03"][0] == Defect(
        Severity.ERROR, f"{asking} requires {asked}, but {version} is installed", f"python -m pip install '{asked}'"
    )


def test_versions_off_the_record_are_errors_for_the_embedded_t5x_only() -> None:
    off = {**CLEAN, "seqio": ("0.0.18", [])}
    embedded, installed = only(environment(off), "ENV04"), only(environment(off, INSTALLED), "ENV04")
    assert (embedded.severity, installed.severity) == ("error", "warning")
    assert embedded.message == (
        "seqio 0.0.18 is installed, but the recorded behavior was made with seqio==0.0.20,"
        " and the embedded T5X is written for that"
    )
    assert installed.message.endswith("numbers may differ from the record")
    assert embedded.fix == installed.fix == "python -m pip install 'seqio==0.0.20'"


def test_what_is_missing_is_named_and_nothing_at_all_is_a_warning() -> None:
    without = only(environment({n: v for n, v in CLEAN.items() if n != "sacrebleu"}), "ENV04")
    assert (without.severity, without.message) == ("error", "sacrebleu is not installed, and runs need it")
    clean = {n: v for n, v in CLEAN.items() if n not in ("flax", "sacrebleu")}
    two = only(environment(clean), "ENV04")
    assert (two.message, two.fix) == (
        "flax, sacrebleu are not installed, and runs need them",
        "python -m pip install 't5x-harness[t5x]'",
    )
    bare = only(environment({"pytest": ("9.0.0", [])}), "ENV04")
    assert (bare.severity, bare.fix) == ("warning", "python -m pip install 't5x-harness[t5x]'")


def test_a_distribution_recorded_twice_is_found(tmp_path: Path) -> None:
    write(tmp_path, CLEAN)
    write(tmp_path, {"flax": ("0.12.9", [])})
    finding = only(read(tmp_path), "ENV02")
    assert finding.message.startswith(f"flax is recorded with versions 0.12.8, 0.12.9 in {tmp_path}")


def test_the_same_distribution_in_two_folders_counts_once(tmp_path: Path) -> None:
    """An earlier folder of the import path shadows a later one, as it does for imports."""
    write(tmp_path / "first", CLEAN)
    write(tmp_path / "second", {"jaxlib": ("0.4.1", [])})
    assert findings(read(tmp_path / "first", tmp_path / "second")) == {}


def test_an_old_jax_cannot_force_devices() -> None:
    old = {**CLEAN, "jax": ("0.4.30", []), "flax": ("0.12.8", []), "optax": ("0.2.8", [])}
    found = findings(environment(old, INSTALLED))
    assert found["ENV07"][0].message.startswith("jax 0.4.30 cannot be given a number of CPU devices")


def test_variables_that_runs_replace_are_said() -> None:
    changed = dataclasses.replace(environment(CLEAN), variables={"JAX_PLATFORMS": "tpu"})
    [devices] = [d for d in diagnose(changed) if d.code == "ENV07"]
    assert devices.summary.endswith("runs replace JAX_PLATFORMS=tpu")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "https://storage.googleapis.com/my-bucket/",
            "with a path: tensorstore would ask for https://storage.googleapis",
        ),
        ("storage.googleapis.com", "which is not an http address"),
        ("https://storage.googleapis.com/", None),
        ("http://127.0.0.1:4443", None),
        ("", None),
    ],
)
def test_a_storage_address_with_a_bucket_in_it_is_found(url: str, problem: str | None) -> None:
    changed = dataclasses.replace(environment(CLEAN), variables={"TENSORSTORE_GCS_HTTP_URL": url})
    if problem is None:
        assert "ENV09" not in findings(changed)
        return
    found = only(changed, "ENV09")
    assert problem in found.message
    assert found.fix == "unset TENSORSTORE_GCS_HTTP_URL"


@given(st.sets(st.sampled_from([rival for _, rival in RIVALS])), st.sets(st.sampled_from(sorted(CLEAN))), st.booleans())
def test_each_clash_is_found_and_nothing_else(rivals: set[str], removed: set[str], placeholder: bool) -> None:
    metadata = {n: v for n, v in CLEAN.items() if n not in removed} | {r: ("1.0", []) for r in rivals}
    base = environment(metadata, INSTALLED)
    looked_at = dataclasses.replace(base, placeholders=(Installed("t5x", "0.0.0", "/lib"),) if placeholder else ())
    found = findings(looked_at)
    assert len(found.get("ENV01", ())) == len(rivals)
    assert {f.severity for f in found.get("ENV01", ())} == {
        "warning" if kept in removed else "error" for kept, rival in RIVALS if rival in rivals
    }
    assert ("ENV05" in found) == placeholder
    needed = {r.name for r in required(looked_at.recorded, "t5x")}
    stand_ins = {kept for kept, rival in RIVALS if rival in rivals}
    told = [f.message for f in found.get("ENV04", ()) if "not installed" in f.message]
    missing = {name for message in told for name in re.split(r" (?:is|are) not installed", message)[0].split(", ")}
    if len(needed & removed - stand_ins) < len(needed):
        assert missing == needed & removed - stand_ins
    assert "ENV03" not in found
    assert all(f.fix.startswith("python -m pip ") for fs in found.values() for f in fs)


def test_table_and_json_say_the_same() -> None:
    diagnoses = diagnose(environment({**CLEAN, "seqio-nightly": ("0.0.19", []), "sacrebleu": ("1.0", [])}))
    table, value = as_table(diagnoses), json.loads(as_json(diagnoses))
    assert value["ok"] is False
    assert [c["code"] for c in value["checks"]] == [c.code for c in CHECKS if not c.of_image]
    for check in value["checks"]:
        assert f"{check['status']:8}{check['code']}" in table
        for finding in check["findings"]:
            assert f"{finding['severity']}: {finding['message']}\n        fix: {finding['fix']}" in table
    assert table.endswith("2 errors, 0 warnings")


def test_the_bounds_of_the_record_are_those_of_the_harness_itself() -> None:
    bounds = {r.name: str(r.specifier) for r in required(Environment.read([], EMBEDDED, {}).recorded, "t5x")}
    assert bounds["seqio"] == "==0.0.20"
    assert {"jax", "flax", "orbax-checkpoint", "tensorflow"} <= set(bounds)


def test_no_two_checks_share_a_code() -> None:
    codes = [check.code for check in CHECKS]
    assert codes == sorted(set(codes))


MAIN = (
    "import argparse, sys; from t5x_harness.commands import doctor;"
    "parser = argparse.ArgumentParser(); doctor.add_arguments(parser);"
    "status = doctor.main(parser.parse_args());"
    "assert not [m for m in ('jax', 'numpy', 'tensorflow', 't5x') if m in sys.modules];"
    "sys.exit(status)"
)


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_examines_its_own_environment_without_importing_it(tmp_path: Path, form: str) -> None:
    write(tmp_path, {"seqio": ("0.0.20", []), "seqio-nightly": ("0.0.19", [])})
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "--format", form],
        check=False, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "seqio 0.0.20 and seqio-nightly 0.0.19 are both installed" in done.stdout
    assert "T5X in use" in done.stdout


def test_what_hides_t5x_from_python_is_a_warning() -> None:
    environment = dataclasses.replace(Environment.read([], EMBEDDED, {}), shadow="/home/me/t5x.py")
    found = diagnose(environment)[[check.code for check in CHECKS].index("ENV06")]
    assert (found.status, [f.severity for f in found.findings]) == ("warning", [Severity.WARNING])
    assert found.findings[0].message == (
        "/home/me/t5x.py only has T5X's name and is first on the import path: runs here pass it over, but python -m "
        "t5x.train fails there, as does a job with it in its working folder"
    )


def test_the_t5x_in_use_is_that_of_the_projects_runs(tmp_path: Path) -> None:
    (tmp_path / "vendor/t5x").mkdir(parents=True)
    for name in ("__init__", "partitioning"):
        (tmp_path / f"vendor/t5x/{name}.py").write_text("")
    (tmp_path / "t5x.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.t5x_harness]\npython_path = ["vendor"]\n')
    done = subprocess.run(
        [sys.executable, "-c", MAIN], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert f"installed T5X unknown version (folder on the import path), in {tmp_path}/vendor/t5x" in done.stdout
    assert "only has T5X's name" not in done.stdout  # python_path precedes it
