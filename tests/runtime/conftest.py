"""Ways in which T5X can be installed, as small fakes in separate folders."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FINDER = """
import sys
from importlib.util import spec_from_file_location

MAPPING = {mapping!r}

class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, MAPPING[fullname] + "/__init__.py")
        return None

def install():
    sys.meta_path.append(_EditableFinder)
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """A folder with fake installations, and processes that see some of them.

    Attributes:
      root: the parent of all folders.
    """

    root: Path

    def package(self, folder: str, *, label: str, real: bool = True) -> Path:
        """Writes a package t5x with a label; if it is not real, it only has the name."""
        package = self.root / folder / "t5x"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"LABEL = {label!r}\n")
        if real:
            (package / "partitioning.py").write_text(
                "LABEL = 'plain'\ndef default_mesh(*a): pass\ndef get_mesh(*a): pass\n"
                "def with_sharding_constraint(x, axis_resources): return x\n"
            )
        return package

    def distribution(self, folder: str, *, files: tuple[str, ...] = (), direct_url: object = None) -> None:
        """Writes the metadata of a distribution t5x 0.0.0 into a folder."""
        info = self.root / folder / "t5x-0.0.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: t5x\nVersion: 0.0.0\n")
        (info / "RECORD").write_text("".join(f"{f},,\n" for f in ("t5x-0.0.0.dist-info/METADATA", *files)))
        if direct_url is not None:
            (info / "direct_url.json").write_text(json.dumps(direct_url))

    def editable(self, folder: str, package: Path) -> None:
        """Installs a checkout as setuptools makes it: a .pth file adds a finder after the import path's."""
        module = "__editable___t5x_0_0_0_finder"
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / folder / f"{module}.py").write_text(FINDER.format(mapping={"t5x": str(package)}))
        (self.root / folder / "__editable__.t5x-0.0.0.pth").write_text(f"import {module}; {module}.install()\n")
        url = {"url": package.parent.as_uri(), "dir_info": {"editable": True}}
        self.distribution(folder, files=(f"{module}.py", "__editable__.t5x-0.0.0.pth"), direct_url=url)

    def run(
        self,
        program: str,
        *,
        path: tuple[str, ...] = (),
        site: str = "",
        cwd: str = "",
        before: tuple[str, ...] = (),
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program in a new Python.

        Args:
          program: the text of the program.
          path: the folders for PYTHONPATH.
          site: a folder that is treated like site-packages, including .pth files.
          cwd: the working folder, which is also on the import path.
          before: a command to put before Python's own, such as exec's.
          check: whether a failure fails the test.
        """
        add_site = f"import site; site.addsitedir({str(self.root / site)!r})\n" if site else ""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(self.root / p) for p in path)}
        done = subprocess.run(
            [*before, sys.executable, "-c", add_site + textwrap.dedent(program)],
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.root / cwd,
            timeout=120,
        )
        assert not check or done.returncode == 0, done.stderr
        return done


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
