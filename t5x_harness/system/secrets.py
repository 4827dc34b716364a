"""Secrets in text that leaves the program: tokens by their shape, and other values by the name that they are bound to.

Only text that is printed or kept in a report is masked. A job and its programs get the real values.
"""

import functools
import re

MASK = "***"

_BREAK = r"(?:\s|\\+[nr])*"  # in the file itself, or in a string that quotes it
_BASE64 = "[A-Za-z0-9+/=]"
_ALONE = r"(?<![\w-])"
_SHAPES = {
    "hf_": rf"{_ALONE}hf_[A-Za-z0-9]{{20,}}",  # Hugging Face
    "sk-": rf"{_ALONE}sk-(?:[\w-]{{0,80}}[-_])?(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{{16,}}[\w-]*",  # OpenAI and Anthropic
    "gh": rf"{_ALONE}gh[pousr]_[A-Za-z0-9]{{16,}}",
    "github_pat_": rf"{_ALONE}github_pat_\w{{16,}}",
    "glpat-": rf"{_ALONE}glpat-[\w-]{{20,}}",
    "AIza": rf"{_ALONE}AIza[\w-]{{30,}}",
    "ya29.": rf"{_ALONE}ya29\.[\w-]{{16,}}",
    "GOCSPX-": rf"{_ALONE}GOCSPX-[\w-]{{20,}}",
    "AKIA": rf"{_ALONE}AKIA[A-Z0-9]{{16}}(?![A-Za-z0-9])",
    "ASIA": rf"{_ALONE}ASIA[A-Z0-9]{{16}}(?![A-Za-z0-9])",
    "xox": rf"{_ALONE}xox[abeprs]-[\w-]{{10,}}",  # Slack
    "eyJ": rf"{_ALONE}eyJ[\w-]{{8,}}\.eyJ[\w-]{{8,}}(?:\.[\w-]+)?",  # a JSON web token
    "PRIVATE KEY-----": (
        rf"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:{_BREAK}(?:{_BASE64}{{16,}}|{_BASE64}+(?={_BREAK}-----END)))*"
        rf"(?:{_BREAK}-----END [A-Z ]*PRIVATE KEY-----)?"
    ),
    "://": r"(?<![a-z+])(?P<kept>[a-z][a-z+]{1,9}://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)",
    "earer": r"(?P<kept>\b[Bb]earer\s+)(?=\S*\d)[\w.~+/=-]{16,}",
    "asic": r"(?P<kept>\b[Bb]asic\s+)(?=\S*\d)[\w.~+/=-]{16,}",
    "=": r"(?P<kept>[?&](?:[\w-]{0,40}(?:token|secret|signature)|key|sig)=)[^&\s'\"#]+",
}
"""The shapes of secrets by a part that each contains. What is kept of a match is its group ``kept``.

These are not compiled on import, because the plugin is imported in every session of pytest.
"""

_VARIABLE = (
    r"(?i)(token|secret|passw(or)?d|passphrase|credentials?|api_?key)$"
    r"|(^|[_-])(token|secret|passw(or)?d|auth|credentials?|key)([_-]|$)"
)
"""The names of variables. The environment of a job has few, so this may match some that are not secret."""

_WORD = r"token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|secret|private|wandb)[_-]?key"
_WORD = rf"(?:{_WORD}|{_WORD.upper()}|Token|Secret|Password|(?:[aA]pi|[aA]ccess|[sS]ecret|[pP]rivate)Key)_?\d*"
_NAME = rf"{_WORD}\Z"
_IN_NAMES = ("token", "secret", "passw", "passphrase", "credential", "key")
"""A part of each name, in small letters: to find one is much quicker than to match the pattern."""

_BOUND = (
    rf"(?P<word>{_WORD})\\*['\"]?\s*[=:]\s*(?P<quote>\\*['\"])(?P<value>[^'\"\n\\]+)(?P=quote)"
    rf"|(?P<bare>{_WORD})(?P<sign>=|:[ \t]+)(?P<text>[^\s'\"\\,;&)\]}}]+)"
)
"""``NAME = 'value'``, in Gin, Python and JSON; ``NAME=value``, as in a shell; and ``name: value``, as in YAML."""

_VOCABULARY = (
    r"(?i)(?:^|[^A-Za-z])(?:[sbe]os|begin|end|start|stop|first|last|next|pad|padding|unk|unknown|mask|sep|separator|cls|extra"
    r"|special|sentinel|prompt|prefix|blank|image|lang|language|task|newline|decoder_start|cur|current|unused|per)_token\d*\Z"
)
"""The names of tokens of a vocabulary, which are words of text."""

_PATH = r"[/~]|\.{1,2}/|[a-z][a-z0-9+]*://|.*\.(?:json|txt|env|key|pem|p12|crt|model|gin|py|ya?ml|toml|cfg|ini)\Z"
_LITERAL = r"[%@$<\[({]|(?:None|True|False|null|true|false|[-+.\de_]{1,15})\Z"
_RANDOM = r"(?=[^\d]*\d)[A-Za-z0-9+/=-]{16,}\Z"
_LEAST_TOKEN = 8
_NAME_BEFORE = re.compile(r"[\w-]*\Z")
_LONGEST_NAME = 60


def masked(name: str, value: str) -> str:
    """Returns the value of a job's environment variable, or :data:`MASK` if it looks like a secret."""
    return MASK if value and (re.search(_VARIABLE, name) or mask_text(value) != value) else value


@functools.lru_cache(maxsize=4096)  # the values of runs with the same includes are the same
def masked_binding(name: str, value: str) -> str:
    """Returns the text of a bound value with its secrets masked.

    Args:
      name: what it is bound to: a variable, a macro, or a parameter behind its configurable.
      value: the value as text, or as Gin or Python writes it.
    """
    text = value.strip("'\"")
    return value.replace(text, MASK) if name and re.search(_NAME, name) and _is_secret(name, text) else mask_text(value)


def mask_text(text: str) -> str:
    """Returns a text in which :data:`MASK` replaces each secret; masking it again changes nothing.

    Secrets are tokens of a known shape, private keys, passwords in URLs, and text that is bound to a name such as
    ``HF_TOKEN`` or ``api_key``. Paths, numbers, and the tokens of a vocabulary (``eos_token``) are not.
    """
    for part, shape in _SHAPES.items():
        if part in text:
            text = re.sub(shape, _without_token, text)
    lower = text.lower()
    return re.sub(_BOUND, _without_value, text) if any(word in lower for word in _IN_NAMES) else text


def _without_token(match: re.Match[str]) -> str:
    return f"{match.groupdict().get('kept', '')}{MASK}"


def _without_value(match: re.Match[str]) -> str:
    group = "value" if match["word"] else "text"
    start = match.start()
    # The name's beginning is read backward, because a pattern that began with it would try each letter of each word.
    before = _NAME_BEFORE.search(match.string, max(0, start - _LONGEST_NAME), start)
    name = f"{before[0] if before else ''}{match['word'] or match['bare']}"
    # In code, what follows a parameter is an expression (token=next_id), and in text, what follows a colon is a word.
    is_variable = match["sign"] == "=" and name.isupper()
    is_expression = group == "text" and not (is_variable or re.match(_RANDOM, match[group]))
    if is_expression or not _is_secret(name, match[group]):
        return match[0]
    return match[0].removesuffix(f"{match[group]}{match['quote'] or ''}") + MASK + (match["quote"] or "")


def _is_secret(name: str, value: str) -> bool:
    """Returns whether a value that is bound to a name of a secret is a secret itself."""
    if not value or value == MASK or re.match(_PATH, value) or re.match(_LITERAL, value):
        return False
    is_token = name.lower().rstrip("0123456789").endswith("token")
    return not is_token or not (re.search(_VOCABULARY, name) or len(value) < _LEAST_TOKEN or " " in value)
