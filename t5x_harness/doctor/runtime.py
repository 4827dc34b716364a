"""Which T5X runs."""

from __future__ import annotations

from t5x_harness.doctor.check import Check, Defect, Diagnosis, error
from t5x_harness.doctor.environment import Environment
from t5x_harness.spec import Severity


class T5xPlaceholder(Check):
    """The distribution ``t5x 0.0.0`` from PyPI, which brings no module: ``pip install t5x`` does not install T5X."""

    code = "ENV05"
    title = "placeholder t5x from PyPI"
    why = "PyPI's `t5x 0.0.0` is a placeholder and brings no module: `pip install t5x` does not install T5X."

    def run(self, environment: Environment) -> Diagnosis:
        """Looks for a distribution named t5x without a package t5x."""
        findings = [
            error(
                f"{placeholder} in {placeholder.folder} is PyPI's placeholder and holds no T5X",
                "python -m pip uninstall -y t5x; and for T5X itself:"
                " python -m pip install 't5x @ git+https://github.com/google-research/t5x'",
            )
            for placeholder in environment.placeholders
        ]
        return self.diagnosis("looked for by its contents", *findings)


class RuntimeInUse(Check):
    """The T5X that runs import, and where it lies."""

    code = "ENV06"
    title = "T5X in use"
    why = (
        "Runs import an installed T5X where there is one, and the embedded T5X elsewhere. This line says which it is "
        "and where it is."
    )

    def run(self, environment: Environment) -> Diagnosis:
        """Says which; there always is one."""
        findings = [
            Defect(
                Severity.WARNING,
                f"{shadow} only has T5X's name and is first on the import path: runs here pass it over, but python -m "
                "t5x.train fails there, as does a job with it in its working folder",
                "rename it, or start T5X in another folder",
            )
            for shadow in filter(None, [environment.shadow])
        ]
        return self.diagnosis(f"{environment.runtime}, in {environment.runtime.location}", *findings)
