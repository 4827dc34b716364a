"""Numbers, folders and switches as people type them, for options of commands and of pytest, and for ini values."""

from __future__ import annotations

import argparse
import os
import sys

from t5x_harness.buckets.emulated import buckets_in
from t5x_harness.promotion.duration import seconds_of
from t5x_harness.system.switch import is_on


def positive(text: str) -> float:
    """Parses a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return number


def count(text: str) -> int:
    """Parses a whole number from 1 up."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


def from_zero(text: str) -> int:
    """Parses a whole number from 0 up."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 up, not {text!r}")
    return int(text)


def duration(text: str) -> int:
    """Parses a length of time into whole seconds."""
    try:
        return max(1, int(seconds_of(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def switch(text: str) -> bool:
    """Parses on or off."""
    try:
        return is_on(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def buckets(text: str) -> str:
    """Returns the absolute path of a folder with a folder for each bucket; a root that ``serve`` keeps has one."""
    given = folder(text)
    found = buckets_in(given)
    if found != given:
        print(
            f"t5x-harness: the buckets of {text} are the folders in {found}, as serve --root has them", file=sys.stderr
        )
    return found


def folder(text: str) -> str:
    """Returns the absolute path of a folder, which has to be there before anything is run."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {os.path.abspath(text)}")
    return os.path.abspath(text)
