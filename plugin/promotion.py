"""Tests marked ``tpu`` that ``-m`` promotes: which they are, where they run, and what is refused before any job."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest

from t5x_harness.promotion.expression import TPU
from t5x_harness.promotion.resources import ResourcesError, TpuResources
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.vertex.target import VertexTarget

from . import marks
from .promotion_options import read_settings, read_target
from .session import SESSION, HarnessSession

__all__ = ["PROMOTION", "Promotion", "promotion_of"]

PROMOTION = pytest.StashKey["Promotion"]()

_TARGET_FIXTURE = "vertex_target"


def promotion_of(item: pytest.Item) -> Promotion | None:
    """The session's promotion, if this test is promoted by it."""
    promotion = item.config.stash[PROMOTION]
    return promotion if promotion.promotes(item) else None


class Promotion:
    """What this session promotes; settings are read when something is.

    Args:
      config: pytest's.
      session: the harness's.
    """

    def __init__(self, config: pytest.Config, session: HarnessSession) -> None:
        self._config = config
        self._session = session
        self.active = marks.promotes_tpu(config.option.markexpr or "")

    @functools.cached_property
    def settings(self) -> PromotionSettings:
        """How promoted tests run.

        Raises:
          pytest.UsageError: a value is none of those that there are.
        """
        return read_settings(self._config, self._session.project.tpu)

    @functools.cached_property
    def target(self) -> VertexTarget:
        """Where the jobs go of tests that no fixture says more for.

        Raises:
          pytest.UsageError: values are missing, or one is wrong.
        """
        return read_target(self._config, self.settings, self._session.project.vertex)

    def promotes(self, item: pytest.Item) -> bool:
        """Whether a test is promoted; its mark is inert otherwise."""
        return self.active and item.get_closest_marker(TPU) is not None

    def resources(self, item: pytest.Item) -> TpuResources:
        """What a test asks for.

        Raises:
          ResourcesError: its marker has a mistake in it.
        """
        return marks.tpu_resources(item, self.settings.defaults)

    def check(self, items: Sequence[pytest.Item]) -> None:
        """Checks that there is a target for the promoted ones of the selected tests.

        Raises:
          pytest.UsageError: values are missing, all of which the message names.
        """
        if any(self.promotes(item) and not self._has_own_target(item) for item in items):
            _ = self.target

    def header(self) -> list[str]:
        """What ``-m`` means for tests marked ``tpu``, where it names them."""
        expression = self._config.option.markexpr or ""
        if not self.active:
            if marks.selects_only(expression, TPU):
                return [
                    f"t5x-harness: -m {expression!r} also selects tests that are not marked {TPU}, so none is promoted "
                    "to a TPU job: all run here"
                ]
            return []
        try:
            where = f"project {self.target.project}, {self.target.location}, image {self.target.image}"
        except pytest.UsageError:
            where = "no target is configured"
        service = "an emulated Vertex AI on this machine" if self.settings.emulated else "Vertex AI"
        dry = "; --tpu-dry-run sends none" if self.settings.dry_run else ""
        return [f"t5x-harness: -m {expression!r} promotes tests marked {TPU} to jobs on {service} ({where}){dry}"]

    def _has_own_target(self, item: pytest.Item) -> bool:
        """Whether a conftest's fixture says where a test's job goes."""
        # pytest offers no public way to ask which fixture a test would get.
        found = item.session._fixturemanager.getfixturedefs(_TARGET_FIXTURE, item)
        return "t5x_run" in getattr(item, "fixturenames", ()) and len(found or ()) > 1


def start(config: pytest.Config) -> None:
    """Makes the session's promotion; a mistake in its options is told at once, if it promotes."""
    promotion = config.stash[PROMOTION] = Promotion(config, config.stash[SESSION])
    if promotion.active:
        _ = promotion.settings


def resources_or_fail(promotion: Promotion, item: pytest.Item) -> TpuResources:
    """What a promoted test asks for; fails it, without a traceback, if its marker has a mistake in it."""
    try:
        return promotion.resources(item)
    except ResourcesError as error:
        pytest.fail(f"@pytest.mark.{TPU}: {error}", pytrace=False)
