"""Which T5X runs."""

from __future__ import annotations

from t5x_harness.doctor.check import Looked, check, error, looked, warning
from t5x_harness.doctor.environment import Environment


@check(
    "ENV05",
    "placeholder t5x from PyPI",
    why="PyPI's `t5x 0.0.0` is a placeholder and brings no module: `pip install t5x` does not install T5X.",
)
def placeholder(environment: Environment) -> Looked:
    """Looks for a distribution named t5x without a package t5x."""
    findings = [
        error(
            f"{found} in {found.folder} is PyPI's placeholder and holds no T5X",
            "python -m pip uninstall -y t5x; and for T5X itself:"
            " python -m pip install 't5x @ git+https://github.com/google-research/t5x'",
        )
        for found in environment.placeholders
    ]
    return looked("looked for by its contents", *findings)


@check(
    "ENV06",
    "T5X in use",
    why=(
        "Runs import an installed T5X where there is one, and the embedded T5X elsewhere. This line says which it is "
        "and where it is."
    ),
)
def runtime_in_use(environment: Environment) -> Looked:
    """Says which T5X runs import, and warns of a folder that only has its name."""
    findings = [
        warning(
            f"{shadow} only has T5X's name and is first on the import path: runs here pass it over, but python -m "
            "t5x.train fails there, as does a job with it in its working folder",
            "rename it, or start T5X in another folder",
        )
        for shadow in filter(None, [environment.shadow])
    ]
    return looked(f"{environment.runtime}, in {environment.runtime.location}", *findings)
