"""Registries of container images, limited to the question of which exist. Globs declare images without contents."""

import dataclasses
import fnmatch
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.google.asgi import NOT_EMULATED, Scope, Send, answer, answer_error, answer_json, not_emulated
from t5x_harness.google.product import PRODUCT

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_LATEST = "latest"
_WILD = "*?["


@dataclasses.dataclass(frozen=True)
class DeclaredImage:
    """An image under all of its tags. No image is built here, so all tags of a name mean the same image.

    Attributes:
      name: its name, with the registry and without a tag: ``gcr.io/my-project/trainer``.
      tags: the known tags.
    """

    name: str
    tags: tuple[str, ...]

    @functools.cached_property
    def config(self) -> bytes:
        """The image's configuration, which a registry stores in addition to its layers."""
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
          The image, or None if no image with this name was declared, or not with this tag.
        """
        image = DeclaredImage(name, self._tags(name))
        if not image.tags and not any(_fits(glob, name) for glob in self._globs):
            return None
        if not reference or reference == image.digest or reference in image.tags:
            return image
        is_there = ":" not in reference and self._has(f"{name}:{reference}")
        return dataclasses.replace(image, tags=(*image.tags, reference)) if is_there else None

    def below(self, prefix: str) -> list[DeclaredImage]:
        """Lists the images whose names begin with a prefix, except for those of a glob that matches several."""
        names = dict.fromkeys(name for glob in self._globs if (name := _name_of(glob)) and name.startswith(prefix))
        return [image for name in names if (image := self.find(name))]

    def has_any(self, prefix: str) -> bool:
        """Returns whether a repository exists: a glob may match an image whose name begins with its prefix."""
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
    """Returns the name in ``gcr.io/p/trainer``, ``…trainer:1``, ``…trainer:*`` or ``…trainer*``; otherwise empty."""
    head, separator, last = glob.rpartition("/")
    name = last.partition(":")[0].removesuffix("*")
    found = f"{head}{separator}{name}"
    return found if name and not any(character in found for character in _WILD) else ""


def tags_list(catalog: Catalog, host: str, name: str) -> dict[str, Any] | None:
    """Returns a registry's answer about a name, or None if no image has this name or is below it."""
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


ARTIFACTS = "artifactregistry.googleapis.com"
ANALYSIS = "containeranalysis.googleapis.com"
REGISTRIES = ("gcr.io", ".pkg.dev")
"""The ends of the hosts of registries."""

_DOCKER = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs|tags)/(?P<reference>[^/]+)")
_REPOSITORY = re.compile(
    r"/v1/projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/repositories/(?P<repository>[^/]+)"
    r"(?:/(?P<collection>dockerImages|packages)(?:/(?P<package>.+?)(?:/(?P<part>tags|versions)(?:/(?P<id>[^/]+))?)?)?)?"
)
_SETTINGS = re.compile(r"/v1/(?P<name>projects/[^/]+/projectSettings)")
_OCCURRENCES = re.compile(r"/v1(?:beta1|alpha1)?/projects/[^/]+/occurrences(?::vulnerabilitySummary)?")
_READS = ("GET", "HEAD")
# It is not known when an image was declared, but clients want a time.
_EPOCH = "1970-01-01T00:00:00Z"


class ImageService:
    """Answers which images exist, and does not accept uploads.

    Args:
      images: the declared images; see :class:`Catalog`.
      refused: called with the host and the message of a refusal, because gcloud does not show it.
    """

    def __init__(self, images: Mapping[str, str], refused: Callable[[str, str], object]) -> None:
        self._catalog = Catalog(images)
        self._refused = refused

    async def answer_registry(self, scope: Scope, host: str, send: Send) -> None:
        """Answers in the form of Docker's registries, because their clients crash at any other."""
        path, found = scope["path"], _DOCKER.fullmatch(scope["path"])
        if path == "/v2/":  # asks whether this is a registry, and how to log in
            return await answer_json(send, 200, {})
        if scope["method"] not in _READS or found is None:
            message = (
                f"{PRODUCT} does not emulate {scope['method']} {host}{path}: images are neither kept nor run here; "
                "a job's image stands for a command, see --vertex-image"
            )
            self._refused(host, message)
            error = {"code": "DENIED", "message": message, "detail": "nothing passes through to the network"}
            return await answer_json(send, NOT_EMULATED, {"errors": [error]})
        name, kind, reference = found["name"], found["kind"], found["reference"]
        if kind == "tags":
            listed = tags_list(self._catalog, host, name)
            return await (answer_json(send, 200, listed) if listed else self._unknown(host, name, "NAME_UNKNOWN", send))
        image = self._catalog.find(f"{host}/{name}", reference if kind == "manifests" else "")
        content = _content(image, kind, reference) if image else None
        if content is None:
            code = "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN"
            return await self._unknown(host, f"{name}:{reference}", code, send)
        body, media_type, digest = content
        headers = {"content-type": media_type, "docker-content-digest": digest}
        return await answer(send, 200, body, headers)

    async def answer_artifacts(self, scope: Scope, send: Send) -> None:
        """Answers for Artifact Registry."""
        path, found = scope["path"], _REPOSITORY.fullmatch(scope["path"])
        if scope["method"] == "GET" and (settings := _SETTINGS.fullmatch(path)):
            state = "REDIRECTION_FROM_GCR_IO_DISABLED"
            return await answer_json(send, 200, {"name": settings["name"], "legacyRedirectionState": state})
        if scope["method"] != "GET" or found is None:
            message = (
                f"{PRODUCT} does not emulate {scope['method']} {ARTIFACTS}{path}; of Artifact Registry it has lists "
                "and descriptions of the images that --vertex-image names"
            )
            return await answer_json(send, NOT_EMULATED, not_emulated(message))
        shown = self._artifact(found)
        if shown is None:
            message = f"Requested entity was not found. {PRODUCT} has the images that --vertex-image names: {path}"
            return await answer_error(send, 404, message)
        return await answer_json(send, 200, shown)

    async def answer_analysis(self, scope: Scope, send: Send) -> None:
        """Answers for Container Analysis, which knows nothing about any image."""
        if scope["method"] == "GET" and _OCCURRENCES.fullmatch(scope["path"]):
            return await answer_json(send, 200, {})
        message = f"{PRODUCT} does not emulate {scope['method']} {ANALYSIS}{scope['path']}"
        return await answer_json(send, NOT_EMULATED, not_emulated(message))

    def _artifact(self, found: re.Match[str]) -> dict[str, Any] | None:
        """Returns a repository or something in it, or None if it does not exist."""
        host = f"{found['location']}-docker.pkg.dev"
        prefix = f"{host}/{found['project']}/{found['repository']}/"
        parent = "projects/{project}/locations/{location}/repositories/{repository}".format(**found.groupdict())
        if not self._catalog.has_any(prefix):
            return None
        collection, package, part, identifier = (found[name] for name in ("collection", "package", "part", "id"))
        if collection is None:
            return {"name": parent, "format": "DOCKER", "createTime": _EPOCH, "updateTime": _EPOCH}
        if package is None:
            images = self._catalog.below(prefix)
            if collection == "packages":
                return {"packages": [{"name": _package(parent, prefix, image)} for image in images]}
            return {"dockerImages": [_docker_image(parent, prefix, image) for image in images]}
        name, _, digest = package.partition("@")
        image = self._catalog.find(prefix + name, digest or (identifier if part else "") or "")
        if image is None:
            return None
        if collection == "dockerImages":
            return _docker_image(parent, prefix, image)
        package_name = _package(parent, prefix, image)
        version = {"name": f"{package_name}/versions/{image.digest}", "createTime": _EPOCH, "updateTime": _EPOCH}
        tags = [{"name": f"{package_name}/tags/{tag}", "version": version["name"]} for tag in image.tags]
        full = {**version, "relatedTags": tags}
        if part is None:
            return {"name": package_name}
        if identifier is None:
            return {"tags": tags} if part == "tags" else {"versions": [full]}
        return full if part == "versions" else {"name": f"{package_name}/tags/{identifier}", "version": version["name"]}

    async def _unknown(self, host: str, what: str, code: str, send: Send) -> None:
        known = "those that --vertex-image, or images of VertexOptions, names"
        message = f"{PRODUCT} has no image {host}/{what}: it has {known}"
        self._refused(host, message)
        await answer_json(send, 404, {"errors": [{"code": code, "message": message, "detail": what}]})


def _content(image: DeclaredImage, kind: str, reference: str) -> tuple[bytes, str, str] | None:
    """Returns a manifest or a blob with its type and digest, or None for a blob that the image does not have."""
    if kind == "manifests":
        return image.manifest, MANIFEST_TYPE, image.digest
    config = image.manifest.decode().partition('"digest": "')[2].partition('"')[0]
    return (image.config, CONFIG_TYPE, config) if reference == config else None


def _package(parent: str, prefix: str, image: DeclaredImage) -> str:
    return f"{parent}/packages/{image.name.removeprefix(prefix).replace('/', '%2F')}"


def _docker_image(parent: str, prefix: str, image: DeclaredImage) -> dict[str, Any]:
    return {
        "name": f"{parent}/dockerImages/{image.name.removeprefix(prefix).replace('/', '%2F')}@{image.digest}",
        "uri": f"{image.name}@{image.digest}",
        "tags": list(image.tags),
        "imageSizeBytes": str(len(image.manifest)),
        "mediaType": MANIFEST_TYPE,
        "uploadTime": _EPOCH,
        "updateTime": _EPOCH,
    }
