"""A model with all its versions: one value in the state, so that an alias moves in one write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.wire.errors import (
    ApiError,
    FieldViolation,
    StatusCode,
    failed_precondition,
    invalid_field,
    not_found,
)

DEFAULT = "default"
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
_OF_MODELS, _OF_VERSIONS = ("display_name", "description", "labels"), ("version_description", "labels")


def split_name(name: str) -> tuple[str, str]:
    """Splits ``…/models/1@2`` into the model's name and the version's id or alias, which may be empty."""
    model, _, version = name.partition("@")
    return model, version


def alias_faults(aliases: Iterable[str]) -> Iterator[FieldViolation]:
    """Yields the errors in the aliases of a request."""
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            message = f"{alias!r} does not match {_ALIAS.pattern}, which no number of a version does"
            yield FieldViolation("version_aliases", message)


class Versions:
    """Reads and changes the value that stores a model.

    Args:
      kept: a ``ListModelVersionsResponse``. Its first message is the model itself: its name, its times, and the
        fields that all versions share. Each other message is a version. A deleted version leaves an empty message, so
        that its number is not used again.
    """

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    @classmethod
    def begin(cls, kept: Any, name: str, model: Any, now: int) -> str:
        """Fills an empty value with a new model and its first version; returns the version's number.

        The labels become the model's own, so that an update of the model's labels replaces them.
        """
        own = kept.models.add(name=name, display_name=model.display_name, description=model.description)
        own.create_time.FromNanoseconds(now)
        own.labels.update(model.labels)
        model.ClearField("labels")
        versions = cls(kept)
        _change(own, now)
        number = versions.add(model, now)
        versions._move((DEFAULT,), versions._versions()[0])
        return number

    def add(self, model: Any, now: int) -> str:
        """Adds a version and returns its number. Its aliases are removed from other versions."""
        number = str(len(self._kept.models))
        aliases = list(model.version_aliases)
        version = self._kept.models.add()
        version.CopyFrom(model)
        version.name, version.version_id = f"{self._own.name}@{number}", number
        version.ClearField("version_aliases")
        version.version_create_time.FromNanoseconds(now)
        _change(version, now)
        self._move(aliases, version)
        return number

    def show(self, version: str = "") -> Any:
        """Returns a version as clients see it.

        Args:
          version: the version's number or an alias; empty for the default version, with the model's name and times.

        Raises:
          ApiError: NOT_FOUND.
        """
        return self._shown(self._find(version or DEFAULT), versioned=bool(version))

    def show_all(self) -> list[Any]:
        """Returns all versions, oldest first."""
        return [self._shown(version, versioned=True) for version in self._versions()]

    def trained_by(self, pipeline: str) -> str:
        """Returns the number of the version that a training pipeline has registered, or an empty string."""
        return next((each.version_id for each in self._versions() if each.training_pipeline == pipeline), "")

    def update(self, given: Any, paths: list[str], version: str, now: int) -> None:
        """Changes the model, or one version of it.

        Args:
          given: the message in the request, perhaps with an etag.
          paths: the paths of the update mask.
          version: the version's number or an alias; empty or ``-`` for the model.
          now: nanoseconds since 1970.

        Raises:
          ApiError: NOT_FOUND; ABORTED, if the etag is not current; FAILED_PRECONDITION, if a field belongs to the
            version but not to the model, or vice versa.
        """
        whole = version in ("", "-")
        target = self._own if whole else self._find(version)
        of_this, of_that = (_OF_MODELS, _OF_VERSIONS) if whole else (_OF_VERSIONS, _OF_MODELS)
        for path in paths:
            field = path.partition(".")[0]
            if field not in (*of_this, *of_that):
                message = f"`{path}` cannot be changed; these can: {', '.join((*_OF_MODELS, _OF_VERSIONS[0]))}"
                raise invalid_field("update_mask", message)
            if field not in of_this:
                mine, name = ("model", self._own.name) if whole else ("version", target.name)
                other = "a version: name it, as in MODEL@1" if whole else "the model: name it without a version"
                raise failed_precondition(f"`{path}` is not a field of the {mine} {name}, but of {other}")
        known = [self._etag(each) for each in (self._versions() if whole else [target])]
        if given.etag and given.etag not in known:
            message = f"Specified Model `etag`: `{given.etag}` does not match server `etag`: `{max(known)}`"
            raise ApiError(StatusCode.ABORTED, message)
        apply_mask(target, given, paths)
        _change(target, now)

    def merge_aliases(self, version: str, changes: Iterable[str]) -> None:
        """Adds aliases to a version, which other versions then lose, and removes aliases with a leading ``-``.

        Raises:
          ApiError: NOT_FOUND, or FAILED_PRECONDITION if no default version would be left.
        """
        target, changes = self._find(version), set(changes)
        added = {change for change in changes if not change.startswith("-") and f"-{change}" not in changes}
        removed = {change[1:] for change in changes if change.startswith("-") and change[1:] not in changes}
        if DEFAULT in removed and DEFAULT in target.version_aliases:
            message = f"{target.name} is the default version: give another one the alias {DEFAULT} instead"
            raise failed_precondition(message)
        target.version_aliases[:] = [each for each in target.version_aliases if each not in removed]
        self._move(sorted(added), target)

    def delete(self, version: str) -> None:
        """Deletes a version; raises ApiError (NOT_FOUND, or FAILED_PRECONDITION for the only or the default one)."""
        target = self._find(version)
        if len(self._versions()) == 1:
            raise failed_precondition(f"{target.name} is the only version of its model: delete the model instead")
        if DEFAULT in target.version_aliases:
            message = f"{target.name} is the default version: give another one the alias {DEFAULT} first"
            raise failed_precondition(message)
        target.Clear()

    @property
    def _own(self) -> Any:
        return self._kept.models[0]

    def _versions(self) -> list[Any]:
        return [version for version in self._kept.models[1:] if version.name]

    def _find(self, version: str) -> Any:
        for each in self._versions():
            if version == each.version_id or version in each.version_aliases:
                return each
        raise not_found(f"{self._own.name}@{version}")

    def _move(self, aliases: Iterable[str], target: Any) -> None:
        for alias in aliases:
            for each in self._versions():
                if alias in each.version_aliases:
                    each.version_aliases.remove(alias)
            target.version_aliases.append(alias)

    def _shown(self, version: Any, *, versioned: bool) -> Any:
        shown = type(version)()
        shown.CopyFrom(version)
        own = self._own
        if not versioned:
            shown.name = own.name
        shown.display_name, shown.description, shown.etag = own.display_name, own.description, self._etag(version)
        for field in ("create_time", "update_time"):
            getattr(shown, field).CopyFrom(getattr(version, f"version_{field}") if versioned else getattr(own, field))
        for key, value in own.labels.items():
            shown.labels.setdefault(key, value)
        return shown

    def _etag(self, version: Any) -> str:
        """Returns the later of the model's and the version's etags, because clients see changes to either."""
        return str(max(self._own.etag, version.etag))


def _change(message: Any, now: int) -> None:
    """Sets the time and the etag of a changed model or version."""
    message.etag = str(now // 1_000)
    getattr(message, "version_update_time" if message.version_id else "update_time").FromNanoseconds(now)
