"""Private names of pytest-xdist: how it decides which items stay together."""

from __future__ import annotations

from collections.abc import Callable


def scheduling_by(group_of: Callable[[str], str | None]) -> type:
    """Makes a scheduler like pytest-xdist's ``--dist load`` that keeps groups of items together and in order.

    Args:
      group_of: returns the name of an item's group for its node id; None for an item without a group.
    """
    from xdist.scheduler import LoadGroupScheduling

    class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid) or str(super()._split_scope(nodeid))

    return GroupScheduling
