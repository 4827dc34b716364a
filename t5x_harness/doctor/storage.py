"""How storage is reached: variables that send tensorstore elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

from t5x_harness.doctor.check import Check, Defect, Diagnosis
from t5x_harness.doctor.environment import Environment
from t5x_harness.spec import Severity

_VARIABLE = "TENSORSTORE_GCS_HTTP_URL"


class StorageEndpoint(Check):
    """Whether tensorstore, which reads and writes checkpoints, talks to Google's storage as it should.

    The variable takes the service's address alone. With a bucket in its path, as seen in forums, every request goes to
    a wrong address and authentication fails.
    """

    code = "ENV09"
    title = "storage endpoint"
    why = (
        "TENSORSTORE_GCS_HTTP_URL takes the address of the storage service alone. With a bucket in its path, as seen "
        "in forums, tensorstore, which reads and writes checkpoints, sends every request to a wrong address and "
        "authentication fails."
    )

    def run(self, environment: Environment) -> Diagnosis:
        """Looks at the variable."""
        url = environment.variables.get(_VARIABLE)
        if not url:
            return self.diagnosis("tensorstore's own")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            problem = f"{_VARIABLE} is {url!r}, which is no http address"
        elif parts.path.strip("/"):
            problem = f"{_VARIABLE} is {url!r}, with a path: tensorstore would ask for {url.rstrip('/')}/storage/v1/…"
        else:
            return self.diagnosis(f"{url}, from {_VARIABLE}")
        return self.diagnosis(url, Defect(Severity.ERROR, problem, f"unset {_VARIABLE}"))
