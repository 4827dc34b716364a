"""An installed T5X wins, however it is installed; without one, the embedded T5X is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.runtime.choice import find_runtime, folder_to_import_from, runtime_of, shadow_of_t5x
from t5x_harness.spec import RunSpec, RuntimeChoice
from t5x_harness.version import __version__

CHOOSE = """
import sys
from t5x_harness.runtime.choice import RuntimeChoiceError, activate, find_runtime
preference = {preference!r}
try:
    runtime = find_runtime(preference)
except RuntimeChoiceError as error:
    sys.exit(f"refused: {{error}}")
assert "t5x" not in sys.modules, "finding must not import"
activate(runtime)
import t5x
print(runtime.kind, runtime.version, runtime.location, runtime.note, getattr(t5x, "LABEL", "embedded"), sep="|")
assert t5x.__path__[0] == runtime.location or list(t5x.__path__) == [runtime.location]
"""


def choose(machine, preference: str = "auto", **where) -> list[str]:
    return machine.run(CHOOSE.format(preference=preference), **where).stdout.strip().split("|")


def test_the_embedded_t5x_is_used_where_none_is_installed(machine) -> None:
    kind, version, location, note, label = choose(machine)
    assert (kind, version, label) == ("embedded", __version__, "embedded")
    assert location.endswith("t5x_harness/embedded/t5x")
    assert note == "no T5X is installed"


def test_a_checkout_on_the_import_path_wins(machine) -> None:
    package = machine.package("checkout", label="checkout")
    assert choose(machine, path=("checkout",)) == [
        "installed", "unknown version", str(package), "folder on the import path", "checkout",
    ]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_a_checkouts_commit_is_part_of_its_version(machine, packed: bool) -> None:
    machine.package("checkout", label="checkout")
    root = machine.root / "checkout"
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"], *([["pack-refs", "--all"]] * packed)):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert choose(machine, path=("checkout",))[1] == f"commit {commit[:12]}"


def test_an_installed_package_wins_and_is_known_by_its_metadata(machine) -> None:
    machine.package("site", label="package")
    commit = "cc342d419ec3" + "0" * 28
    machine.distribution(
        "site", files=("t5x/__init__.py",), direct_url={"url": "https://x/t5x", "vcs_info": {"commit_id": commit}}
    )
    kind, version, _, note, label = choose(machine, site="site")
    assert (kind, version, note, label) == ("installed", "0.0.0, commit cc342d419ec3", "installed package", "package")


def test_a_repository_around_the_environment_is_not_taken_for_t5xs(machine) -> None:
    """The commit of a project that contains its environment says nothing about T5X."""
    machine.package("project/.venv/site-packages", label="package")
    (machine.root / "project" / ".git").mkdir()
    (machine.root / "project" / ".git" / "HEAD").write_text("f" * 40)
    assert choose(machine, site="project/.venv/site-packages")[1] == "unknown version"


def test_an_editable_install_wins_though_its_finder_comes_last(machine) -> None:
    package = machine.package("checkout", label="editable")
    machine.editable("site", package)
    kind, version, location, note, label = choose(machine, site="site")
    assert (kind, version, location) == ("installed", "0.0.0", str(package))
    assert (note, label) == ("editable install", "editable")


def test_an_editable_install_by_setup_py_is_known_too(machine) -> None:
    """It puts the checkout on the import path with a .pth file, and its metadata remains in the checkout."""
    package = machine.package("checkout", label="developed")
    info = machine.root / "checkout" / "t5x.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: t5x\nVersion: 0.0.0\n")
    (machine.root / "site").mkdir()
    (machine.root / "site" / "easy-install.pth").write_text(f"{machine.root / 'checkout'}\n")
    (machine.root / "site" / "t5x.egg-link").write_text(f"{machine.root / 'checkout'}\n.")
    assert choose(machine, site="site") == ["installed", "0.0.0", str(package), "editable install", "developed"]


def test_a_clone_seen_from_outside_hides_no_editable_install(machine) -> None:
    """`git clone …/t5x` leaves a folder t5x without __init__.py, which Python treats as a namespace package."""
    package = machine.package("work/t5x", label="editable")
    machine.editable("site", package)
    assert choose(machine, site="site", cwd="work")[2:] == [str(package), "editable install", "editable"]
    hidden = machine.run("import t5x; print(t5x.__file__)", site="site", cwd="work").stdout.strip()
    assert hidden == "None"


@pytest.mark.parametrize("preference", ["auto", "embedded"])
def test_what_only_has_the_name_does_not_count(machine, preference: str) -> None:
    machine.package("mine", label="not T5X", real=False)
    (machine.root / "work" / "t5x").mkdir(parents=True)
    machine.distribution("site")
    kind, _, _, note, label = choose(machine, preference, path=("mine",), site="site", cwd="work")
    assert (kind, label) == ("embedded", "embedded")
    if preference == "embedded":
        assert note == "as asked for"
    else:
        assert f"passed over {machine.root}/mine/t5x (no T5X: it has no module partitioning)" in note
        assert f"passed over the distribution t5x 0.0.0 in {machine.root}/site" in note


def test_installed_without_one_says_where_it_looked_and_how_to_fix_it(machine) -> None:
    machine.distribution("site")
    done = machine.run(CHOOSE.format(preference="installed"), site="site", path=("elsewhere",), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("refused: no installed T5X was found: looked for a package t5x on the import path (")
    assert f"{machine.root}/elsewhere" in done.stderr
    assert "PyPI's placeholder: it holds no module" in done.stderr
    assert "python -m pip install 't5x @ git+https://github.com/google-research/t5x'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_t5x_imported_already_stays_and_is_named(machine) -> None:
    package = machine.package("checkout", label="checkout")
    program = """
    import sys, t5x
    from t5x_harness.runtime.choice import RuntimeChoiceError, activate, find_runtime
    print(find_runtime().note)
    activate(find_runtime())
    try:
        activate(find_runtime("embedded"))
    except RuntimeChoiceError as error:
        print(error)
    """
    note, error = machine.run(program, path=("checkout",)).stdout.splitlines()
    assert note == "imported already"
    assert error.startswith(f"t5x was already imported from {package}, so ")
    assert error.endswith("choose the runtime before anything imports t5x, or run in a fresh process")


def test_an_embedded_folder_on_the_import_path_is_not_taken_for_an_installed_t5x(machine) -> None:
    import t5x_harness

    folder = Path(t5x_harness.__file__).parent / "embedded"
    assert choose(machine, path=(str(folder),))[0] == "embedded"


def test_finding_costs_no_heavy_import(machine) -> None:
    program = """
    import sys
    from t5x_harness.runtime.choice import activate, find_runtime
    activate(find_runtime())
    print([m for m in ("jax", "numpy", "tensorflow", "t5x", "packaging") if m in sys.modules])
    """
    assert machine.run(program).stdout.strip() == "[]"


def test_a_checkout_that_a_run_works_in_is_its_t5x(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that ``python -m t5x.train`` would use, though this process does not import from there."""
    monkeypatch.delitem(sys.modules, "t5x", raising=False)  # an earlier test may have imported it, and then it remains
    package = machine.package("checkout", label="checkout")
    here = runtime_of(RunSpec(("x.gin",), cwd=str(package.parent)))
    assert (here.kind, here.location, here.note) == ("installed", str(package), "folder on the import path")
    assert folder_to_import_from(here) == str(package.parent)
    by_path = runtime_of(RunSpec(("x.gin",), python_path=("checkout",), cwd=str(machine.root)))
    assert by_path.location == str(package)
    monkeypatch.chdir(package.parent)
    assert runtime_of(RunSpec(("x.gin",))).note == "the package t5x of the working folder"
    embedded = runtime_of(RunSpec(("x.gin",), runtime=RuntimeChoice.EMBEDDED))
    assert (embedded.kind, folder_to_import_from(embedded)) == ("embedded", None)


@pytest.mark.parametrize("is_file", [False, True])
def test_what_only_has_its_name_in_a_run_s_folder_hides_nothing(machine, is_file: bool) -> None:
    if is_file:
        (machine.root / "t5x.py").write_text("")
    else:
        (machine.root / "t5x/t5x").mkdir(parents=True)  # a clone, seen from its parent folder
    folders = (str(machine.root),)
    assert find_runtime("auto", folders).kind == "embedded"
    # Python mistakes the file for T5X, but skips a folder without __init__.py.
    assert shadow_of_t5x(folders) == (f"{machine.root}/t5x.py" if is_file else "")
    package = machine.package("checkout", label="checkout")
    assert shadow_of_t5x((str(package.parent), *folders)) == ""


def test_what_is_imported_stays_whatever_comes_into_the_path(machine) -> None:
    """A run's folder is added to the path of a process that has already imported the embedded T5X."""
    machine.package("checkout", label="checkout")
    program = (
        "import sys\nfrom t5x_harness.runtime.choice import activate, find_runtime\n"
        "activate(find_runtime('auto'))\nimport t5x\nsys.path.insert(0, 'checkout')\n"
        "again = find_runtime('auto')\nactivate(again)\nprint(again)"
    )
    assert machine.run(program).stdout.strip() == (
        f"embedded T5X {__version__} (no T5X is installed; passed over {machine.root}/checkout/t5x (the embedded T5X "
        "was imported before))"
    )
