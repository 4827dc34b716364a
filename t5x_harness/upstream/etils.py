"""What etils asks of each bucket, answered without asking: whether it is zonal, which none of a private Google is.

etils asks the service through a library of its own, over gRPC. Importing it is a tenth of a worker's imports, and the
server would have to import gRPC for it, too.
"""

from __future__ import annotations

from etils.epath import gpath

from t5x_harness.system.buckets import store

__all__ = ["skip_zonal_bucket_probe"]


def skip_zonal_bucket_probe() -> None:
    """Has etils ask nothing in this process, if a private Google has its buckets; older versions never ask."""
    if store() is not None and hasattr(gpath, "_is_zonal_gcs_bucket"):
        gpath._is_zonal_gcs_bucket = lambda bucket: False
