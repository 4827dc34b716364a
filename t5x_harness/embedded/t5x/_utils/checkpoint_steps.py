"""Checkpoints at listed steps, beside those of the period."""

from __future__ import annotations

from collections.abc import Sequence


def find_next_checkpoint_step(
    checkpoint_steps_index: int,
    inner_num_steps: int,
    is_checkpoint_step: bool,
    host_step: int,
    checkpoint_steps: Sequence[int],
    epoch_end_step: int,
    checkpoint_period: int,
    first_step: int,
) -> tuple[int, bool]:
    """Shortens a stretch of train steps so that it ends on the next listed checkpoint step.

    A listed step counts when it lies in the stretch, after ``first_step``, not after ``epoch_end_step``, and is not one
    at which the period saves anyway.

    Args:
        checkpoint_steps_index: Where in ``checkpoint_steps`` to begin looking.
        inner_num_steps: Steps in the stretch.
        is_checkpoint_step: What to return when no listed step counts.
        host_step: The step before the stretch.
        checkpoint_steps: The listed steps, ascending; may be empty or None.
        epoch_end_step: Last step of the epoch.
        checkpoint_period: Steps between the checkpoints of the period, counted from ``first_step``.
        first_step: Step at which this job began.

    Returns:
        The length of the stretch, and whether a checkpoint is due at its end.
    """
    for listed in (checkpoint_steps or ())[checkpoint_steps_index:]:
        if listed > host_step + inner_num_steps:
            break
        if first_step < listed <= epoch_end_step and (listed - first_step) % checkpoint_period:
            return listed - host_step, True
    return inner_num_steps, is_checkpoint_step


def find_first_checkpoint_step(
    checkpoint_steps_index: int, checkpoint_steps: Sequence[int], first_step: int, host_step: int
) -> int:
    """Finds the first listed step that is still to come.

    Args:
        checkpoint_steps_index: Where in ``checkpoint_steps`` to begin looking.
        checkpoint_steps: The listed steps, ascending; may be empty or None.
        first_step: Step at which this job began; nothing is saved there.
        host_step: The current step.

    Returns:
        The index of the first listed step that is neither before ``host_step`` nor ``first_step``; the last index when
        there is none.
    """
    last = len(checkpoint_steps or ()) - 1
    index = checkpoint_steps_index
    while index < last and (checkpoint_steps[index] < host_step or checkpoint_steps[index] == first_step):
        index += 1
    return index
