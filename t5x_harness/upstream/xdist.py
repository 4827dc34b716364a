"""What pytest-xdist keeps to itself: how it asks which items stay together."""

from __future__ import annotations

from collections.abc import Callable


def scheduling_by(group_of: Callable[[str], str | None]) -> type:
    """Makes pytest-xdist's ``--dist load`` with groups of items that stay together and in order.

    Args:
      group_of: the name of an item's group by its node id; None for one that xdist shall place.
    """
    from xdist.scheduler import LoadGroupScheduling

    class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid) or str(super()._split_scope(nodeid))

    return GroupScheduling
