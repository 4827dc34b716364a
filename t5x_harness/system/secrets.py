"""Masks values that terminals, logs and reports must not show, by the names of variables and the form of values."""

from __future__ import annotations

import re

MASK = "***"

_NAMES = re.compile(
    r"(token|secret|passw(or)?d|passphrase|credentials?|api_?key)$"
    r"|(^|[_-])(token|secret|passw(or)?d|auth|credentials?|key)([_-]|$)",
    re.IGNORECASE,
)
# Of Hugging Face, GitHub, OpenAI, Google, Slack and Weights & Biases; keys in PEM; URLs with a password.
_VALUES = re.compile(
    r"hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|sk-[\w-]{16,}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|(?<![a-z+])[a-z+]+://[^/\s:@]*:[^/\s@]+@"
)


def masked(name: str, value: str) -> str:
    """Returns the value of a variable, or :data:`MASK` if it looks like a secret."""
    return MASK if value and (_NAMES.search(name) or _VALUES.search(value)) else value
