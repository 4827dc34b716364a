"""``doctor --image`` reports on good and bad images, and this repository's image is built as it requires."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from t5x_harness.commands.main import main
from t5x_harness.doctor import diagnose
from t5x_harness.doctor.check import Environment, Installed
from t5x_harness.runtime.choice import Runtime
from t5x_harness.variables import COMMIT_VARIABLE, REQUIREMENTS_VARIABLE

COMMIT = "cc342d419ec3e3e9c4bf1df33c82330cafdc1e16"
VERSIONS = {"jax": "0.10.2", "libtpu": "0.0.42.1", "pytest": "9.2.0", "t5x-harness": "0.1.0", "seqio": "0.0.20"}


@pytest.fixture
def image(tmp_path: Path) -> Environment:
    """Makes the environment of an image without defects."""
    for name in ("main", "train", "eval", "infer"):
        (tmp_path / "t5x").mkdir(exist_ok=True)
        (tmp_path / "t5x" / f"{name}.py").touch()
    pins = tmp_path / "requirements.txt"
    pins.write_text("# all of them\n" + "".join(f"{n}=={v}\n" for n, v in VERSIONS.items() if n != "t5x-harness"))
    return Environment(
        distributions(VERSIONS),
        Runtime("installed", f"0.0.0, commit {COMMIT[:12]}", str(tmp_path / "t5x"), "installed package"),
        variables={COMMIT_VARIABLE: COMMIT, REQUIREMENTS_VARIABLE: str(pins)},
    )


def distributions(versions: Mapping[str, str]) -> tuple[Installed, ...]:
    asks = {"jax": ('libtpu==0.0.42.*; extra == "tpu"',)}
    return tuple(Installed(name, version, "/lib", asks.get(name, ())) for name, version in versions.items())


def messages(image: Environment) -> dict[str, list[str]]:
    return {d.code: [f.message for f in d.findings] for d in diagnose(image, of_image=True) if d.findings}


def test_an_image_as_it_should_be_has_no_finding(image: Environment) -> None:
    found = diagnose(image, of_image=True)
    assert [d.code for d in found] == ["IMG01", "IMG02", "IMG03", "IMG04", "IMG05", "IMG06", "ENV05"]
    assert messages(image) == {}


def test_the_doctors_usual_round_has_none_of_these(image: Environment) -> None:
    assert not [d.code for d in diagnose(image) if d.code.startswith("IMG")]


def test_another_commit_is_drift(image: Environment) -> None:
    runtime = Runtime("installed", "0.0.0, commit 0123456789ab", image.runtime.location, "installed package")
    assert messages(dataclasses.replace(image, runtime=runtime)) == {
        "IMG01": ["T5X 0.0.0, commit 0123456789ab is installed, and the image was to have commit cc342d419ec3"]
    }


def test_the_embedded_runtime_is_none_for_a_tpu(image: Environment) -> None:
    note = "no T5X is installed; passed over /opt/t5x (no T5X: it has no module partitioning)"
    runtime = Runtime("embedded", "0.1.0", image.runtime.location, note)
    assert messages(dataclasses.replace(image, runtime=runtime))["IMG01"] == [
        f"{note}: jobs would run the harness's embedded runtime"
    ]


def test_an_image_that_names_nothing_cannot_be_compared(image: Environment) -> None:
    found = messages(dataclasses.replace(image, variables={}))
    assert found["IMG01"] == [f"{COMMIT_VARIABLE} is not set, so it is not known which T5X was meant"]
    assert found["IMG03"] == [f"there is no file with the image's versions: {REQUIREMENTS_VARIABLE} is not set"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("eval", "import no_such_optimizer\n", "ModuleNotFoundError: No module named 'no_such_optimizer'"),
        ("main", "import sys\nsys.exit(7)\n", "exit status 7"),
    ],
)
def test_a_t5x_that_cannot_be_imported_is_no_entry_point(image: Environment, name: str, text: str, reason: str) -> None:
    file = Path(image.runtime.location) / f"{name}.py"
    file.write_text(text)
    assert messages(image) == {"IMG02": [f"t5x.main and its run modes cannot be imported: {reason}"]}
    file.unlink()
    assert messages(image) == {"IMG02": [f"{image.runtime.location} has no {name}.py"]}


def test_an_import_that_fails_in_the_stack_names_the_package_that_is_wrong(image: Environment) -> None:
    line = "cannot import name 'linear_util' from 'jax.extend'"
    (Path(image.runtime.location) / "train.py").write_text(f"raise ImportError({line!r})\n")
    [found] = [d for d in diagnose(image, of_image=True) if d.findings]
    assert found.findings[0].message == (
        "t5x.main and its run modes cannot be imported: jax is older than t5x needs: it has no jax.extend.linear_util "
        f"(INS06: ImportError: {line})"
    )
    assert found.findings[0].fix.startswith("python -m pip install --constraint ")


def test_a_t5x_whose_import_does_not_end_is_no_entry_point(image: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t5x_harness.doctor.image._IMPORT_SECONDS", 0.5)
    (Path(image.runtime.location) / "infer.py").write_text("import time\ntime.sleep(600)\n")
    reason = "that had not ended after 0.5 s"
    assert messages(image) == {"IMG02": [f"t5x.main and its run modes cannot be imported: {reason}"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seqio==0.0.18", "seqio is to be 0.0.18, and 0.0.20 is installed"),
        ("grain==0.2.18", "grain is to be 0.2.18, and nothing is installed"),
        ("seqio>=0.0.18", "'seqio>=0.0.18' leaves the version open"),
        ("seqio==0.0.*", "'seqio==0.0.*' leaves the version open"),
        ("seqio", "'seqio' leaves the version open"),
        ("git+https://host/x", "'git+https://host/x' is not a requirement"),
    ],
)
def test_a_version_that_is_open_or_another_is_drift(image: Environment, line: str, message: str) -> None:
    Path(image.variables[REQUIREMENTS_VARIABLE]).write_text(f"{line}\n")
    assert messages(image) == {"IMG03": [message]}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, "libtpu is not installed, and jax 0.10.2 needs it for a TPU"),
        ("0.0.52", "jax 0.10.2 asks for libtpu==0.0.42.*, but 0.0.52 is installed"),
    ],
)
def test_the_tpu_library_is_the_one_that_jax_asks_for(image: Environment, version: str | None, message: str) -> None:
    versions = {name: v for name, v in {**VERSIONS, "libtpu": version}.items() if v is not None}
    assert messages(dataclasses.replace(image, distributions=distributions(versions)))["IMG04"] == [message]


def test_an_image_without_the_harness_takes_no_tests(image: Environment) -> None:
    versions = {name: version for name, version in VERSIONS.items() if name != "t5x-harness"}
    assert messages(dataclasses.replace(image, distributions=distributions(versions)))["IMG05"] == [
        "t5x-harness is not installed, so no test can be shipped to the image"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9000"),
        ("JAX_PLATFORMS", "cpu"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=8"),
    ],
)
def test_what_an_emulation_left_is_named(image: Environment, name: str, value: str) -> None:
    found = messages(dataclasses.replace(image, variables={**image.variables, name: value}))
    assert found == {"IMG06": [f"{name}={value} is set in the image"]}


def test_pypis_placeholder_is_found_in_images_too(image: Environment) -> None:
    placeholder = Installed("t5x", "0.0.0", "/lib")
    assert list(messages(dataclasses.replace(image, placeholders=(placeholder,)))) == ["ENV05"]


@pytest.mark.journey
def test_the_command_line_has_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMIT_VARIABLE, raising=False)
    main(["doctor", "--image"])
    assert "IMG01  T5X at its commit" in capsys.readouterr().out


class TestThisRepositorysImage:
    """The Dockerfile is read, and no image is built."""

    @pytest.fixture
    def text(self, repository: Path) -> str:
        return (repository / "docker/Dockerfile").read_text()

    def test_every_version_is_one_version(self, repository: Path) -> None:
        lines = [line for line in (repository / "docker/requirements.txt").read_text().splitlines() if line[0] != "#"]
        pins = [Requirement(line) for line in lines]
        assert [str(pin.specifier)[:2] for pin in pins] == ["=="] * len(pins)
        assert len({pin.name for pin in pins}) == len(pins) > 50
        assert not [line for line in lines if "*" in line or "git+" in line]

    def test_it_holds_what_the_extra_t5x_asks_for(self, repository: Path) -> None:
        lines = (repository / "docker/requirements.txt").read_text().splitlines()
        pins = {
            r.name: str(r.specifier).removeprefix("==") for r in map(Requirement, (x for x in lines if x[0] != "#"))
        }
        asked = [r for r in map(Requirement, Environment.read().recorded) if "t5x" in str(r.marker)]
        assert asked
        for requirement in asked:
            name = requirement.name.replace("_", "-")
            assert requirement.specifier.contains(pins[name]), f"{requirement}: {pins.get(name)} is in the image"

    def test_sources_are_at_full_commits(self, text: str) -> None:
        assert dict(re.findall(r"^ARG (\w+)_COMMIT=([0-9a-f]{40})$", text, re.MULTILINE)).keys() == {
            "T5X", "AIRIO", "JESTIMATOR",
        }  # fmt: skip
        assert set(re.findall(r"git\+\S+@(\S+?)\"", text)) == {
            "${T5X_COMMIT}", "${AIRIO_COMMIT}", "${JESTIMATOR_COMMIT}",
        }  # fmt: skip

    def test_pip_chooses_nothing(self, text: str) -> None:
        installs = re.findall(r"pip install (?:[^\n]*\\\n)*[^\n]*", text)
        assert installs
        for command in installs:
            pinned = re.findall(r" [\w-]+==[\d.]+", command)
            assert "--no-deps" in command or len(pinned) == len(re.findall(r" [a-z]\w+(?==)", command)) > 0

    def test_the_base_is_no_moving_tag(self, text: str) -> None:
        assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == ["python:3.11.14-slim-bookworm"]

    def test_its_entry_point_is_t5xs_main(self, text: str) -> None:
        assert text.rstrip().endswith('ENTRYPOINT ["python", "-m", "t5x.main"]')

    def test_it_is_examined_while_it_is_built(self, text: str) -> None:
        assert "RUN t5x-harness doctor --image" in text
        assert f"{COMMIT_VARIABLE}=${{T5X_COMMIT}}" in text
        assert f"{REQUIREMENTS_VARIABLE}=/opt/t5x/requirements.txt" in text

    def test_everything_that_it_copies_is_here_and_reaches_the_build(self, repository: Path, text: str) -> None:
        ignored = (repository / "docker/Dockerfile.dockerignore").read_text().splitlines()
        for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
            for source in line.split()[:-1]:
                assert (repository / source).exists()
                assert f"!{source}" in ignored
