"""The declared images: a glob says which images exist, but not what is in them."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.product import PRODUCT

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_LATEST = "latest"
_WILD = "*?["


@dataclasses.dataclass(frozen=True)
class DeclaredImage:
    """An image under all of its tags. No image is built here, so all tags of a name mean the same image.

    Attributes:
      name: its name with the registry and without a tag: ``gcr.io/my-project/trainer``.
      tags: the tags that are known.
    """

    name: str
    tags: tuple[str, ...]

    @functools.cached_property
    def config(self) -> bytes:
        """The image's configuration, which a registry stores besides its layers."""
        return _json(
            {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}
        )

    @functools.cached_property
    def manifest(self) -> bytes:
        """The manifest, which has no layers, and an annotation that differs between names."""
        config = {"mediaType": CONFIG_TYPE, "size": len(self.config), "digest": digest_of(self.config)}
        note = {f"{PRODUCT}.image": self.name}
        return _json(
            {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [], "annotations": note}
        )

    @property
    def digest(self) -> str:
        """``sha256:…`` of the manifest."""
        return digest_of(self.manifest)


class Catalog:
    """The declared images by name.

    Args:
      images: the user's map from globs to commands: ``--vertex-image``.
    """

    def __init__(self, images: Mapping[str, str]) -> None:
        self._globs = tuple(images)

    def find(self, name: str, reference: str = "") -> DeclaredImage | None:
        """Finds an image.

        Args:
          name: its name with the registry: ``gcr.io/my-project/trainer``.
          reference: a tag or a digest; empty for any.

        Returns:
          The image, or None if no image of that name was declared, or not with that tag.
        """
        image = DeclaredImage(name, self._tags(name))
        if not image.tags and not any(_fits(glob, name) for glob in self._globs):
            return None
        if not reference or reference == image.digest or reference in image.tags:
            return image
        is_there = ":" not in reference and self._has(f"{name}:{reference}")
        return dataclasses.replace(image, tags=(*image.tags, reference)) if is_there else None

    def below(self, prefix: str) -> list[DeclaredImage]:
        """Lists the images whose names begin with a prefix, except for those of a glob that stands for several."""
        names = dict.fromkeys(name for glob in self._globs if (name := _name_of(glob)) and name.startswith(prefix))
        return [image for name in names if (image := self.find(name))]

    def has_any(self, prefix: str) -> bool:
        """Returns whether a repository exists: a glob may stand for an image whose name begins with its prefix."""
        return any(_name_of(glob).startswith(prefix) or _fits(glob, f"{prefix}x") for glob in self._globs)

    def _tags(self, name: str) -> tuple[str, ...]:
        exact = [glob.removeprefix(f"{name}:") for glob in self._globs if glob.startswith(f"{name}:")]
        tags = [tag for tag in exact if not any(character in tag for character in _WILD)]
        return tuple(dict.fromkeys([*tags, *([_LATEST] if self._has(f"{name}:{_LATEST}") else [])]))

    def _has(self, uri: str) -> bool:
        return any(_fits(glob, uri) for glob in self._globs)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _fits(glob: str, uri: str) -> bool:
    return fnmatch.fnmatchcase(uri, glob) or fnmatch.fnmatchcase(uri, f"{glob}:{_LATEST}")


def _name_of(glob: str) -> str:
    """Returns the name in ``gcr.io/p/trainer``, ``…trainer:1``, ``…trainer:*`` or ``…trainer*``; else nothing."""
    head, separator, last = glob.rpartition("/")
    name = last.partition(":")[0].removesuffix("*")
    found = f"{head}{separator}{name}"
    return found if name and not any(character in found for character in _WILD) else ""


def tags_list(catalog: Catalog, host: str, name: str) -> dict[str, Any] | None:
    """Returns a registry's answer about a name, or None if there is no such image, and none below it."""
    image, below = catalog.find(f"{host}/{name}"), catalog.below(f"{host}/{name}/")
    if image is None and not below:
        return None
    children = dict.fromkeys(each.name.removeprefix(f"{host}/{name}/").partition("/")[0] for each in below)
    manifests = {image.digest: _listed(image)} if image else {}
    return {"name": name, "tags": list(image.tags) if image else [], "manifest": manifests, "child": list(children)}


def _listed(image: DeclaredImage) -> dict[str, Any]:
    times = dict.fromkeys(("timeCreatedMs", "timeUploadedMs"), "0")
    size = str(len(image.manifest))
    return {"imageSizeBytes": size, "mediaType": MANIFEST_TYPE, "tag": list(image.tags), **times}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
