"""What orbax decides by the address of a folder."""


def takes_for_bucket(path: str) -> bool:
    """Tells whether orbax writes a commit file into the checkpoints in a folder, and removes those without it.

    Every orbax does so at gs://, and some versions at /gcs/, too.
    """
    if path.startswith("gs://"):
        return True
    try:
        from etils import epath
        from orbax.checkpoint._src.path import gcs_utils

        return bool(gcs_utils.is_gcs_path(epath.Path(path)))
    except (ImportError, AttributeError):  # an orbax that has another module for it
        return False
