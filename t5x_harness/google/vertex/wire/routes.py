"""Finds the method of an HTTP request by the library's URL templates."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping

from t5x_harness.google.vertex.wire.rpc_table import HttpBinding, Rpc, rpc_table

_VARIABLE = re.compile(r"\{([\w.]+)(?:=([^}]+))?\}")


@dataclasses.dataclass(frozen=True)
class Match:
    """A method, and the fields of its request that are in the path.

    Attributes:
      rpc: the method.
      binding: the URL template that matched.
      values: the fields' values by their paths: ``{"custom_job.name": "projects/…"}``.
    """

    rpc: Rpc
    binding: HttpBinding
    values: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _Route:
    rpc: Rpc
    binding: HttpBinding
    pattern: re.Pattern[str]
    fields: tuple[str, ...]


class Routes:
    """Finds methods by verb and path."""

    def __init__(self, rpcs: Iterable[Rpc]) -> None:
        self._routes: dict[tuple[str, str, int], list[_Route]] = collections.defaultdict(list)
        for rpc in rpcs:
            for binding in rpc.bindings:
                route = _compiled(rpc, binding)
                # Narrows thousands of templates down; ``**`` matches any number of segments.
                segments = 0 if "**" in binding.template else binding.template.count("/")
                self._routes[binding.verb, _action(binding.template), segments].append(route)
        for routes in self._routes.values():
            routes.sort(key=lambda route: -len(_VARIABLE.sub("", route.binding.template)))

    def find(self, verb: str, path: str) -> Match | None:
        """Returns the method of a request, or None.

        Args:
          verb: ``GET``, ``POST``, …
          path: the decoded path, such as ``/v1/projects/p/locations/l/customJobs/1:cancel``.
        """
        for segments in (path.count("/"), 0):
            for route in self._routes.get((verb, _action(path), segments), ()):
                if found := route.pattern.fullmatch(path):
                    return Match(route.rpc, route.binding, dict(zip(route.fields, found.groups(), strict=True)))
        return None


@functools.cache
def routes_of(version: str) -> Routes:
    """Returns the routes of one version of the API; for the argument see :func:`rpc_table`."""
    return Routes(rpc_table(version).values())


def _action(path: str) -> str:
    """Returns ``cancel`` for a path that ends in ``:cancel``."""
    return path.rpartition("/")[2].partition(":")[2]


def _compiled(rpc: Rpc, binding: HttpBinding) -> _Route:
    pattern, fields, at = "", [], 0
    for variable in _VARIABLE.finditer(binding.template):
        value = re.escape(variable[2] or "*").replace(r"\*\*", ".+").replace(r"\*", "[^/:]+")
        pattern += re.escape(binding.template[at : variable.start()]) + f"({value})"
        fields.append(variable[1])
        at = variable.end()
    return _Route(rpc, binding, re.compile(pattern + re.escape(binding.template[at:])), tuple(fields))
