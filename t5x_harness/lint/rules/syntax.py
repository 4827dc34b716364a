"""GIN07, GIN19 and VTX07: text that Gin cannot parse."""

import re
import unicodedata
from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Rule, run_head
from t5x_harness.gin.problems import Problem, ProblemKind
from t5x_harness.gin.program import BINDINGS
from t5x_harness.lint.edits import write_value
from t5x_harness.lint.rule import Context
from t5x_harness.system.misspelling import closest, meant

_STRING_OR_REST = re.compile(r"""(['"])(?:\\.|(?!\1).)*\1|['"#].*""", re.DOTALL)
"""A string in straight quotes; else a comment or an unterminated string, up to the end of the line."""

_MEANT = {
    "Zs": "a plain space",
    "Cf": "",
    "Pd": "a plain -",
    "Sm": "a plain -",
    "Pi": "a straight quote",
    "Pf": "a straight quote",
}
"""The replacement by the character's category in Unicode; empty for an invisible character."""

_QUOTES = frozenset("\u201a\u201e\u2032\u2033\u00b4\uff02\uff07`")
"""Characters of other categories that are used as quotes."""


def unseen_character(line: str, detail: str) -> tuple[str, str] | None:
    """Returns the character of a line that looks like another one, or is invisible, and the fix.

    Args:
      line: the line as the file has it. Strings and comments may contain any character.
      detail: the parser's message.

    Returns:
      None if no character is misleading.
    """
    outside = _STRING_OR_REST.sub(lambda match: "x" * len(match[0]), line)
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    if "\t" in indent and re.search(r"indent|\btabs?\b|Invalid identifier", detail):
        return f"{detail}; column {indent.index(chr(9)) + 1} is a tab", "indent with spaces alone"
    for column, character in enumerate(outside, start=1):
        if character in _QUOTES:
            meant: str | None = "a straight quote"
        else:
            meant = None if character.isascii() else _MEANT.get(unicodedata.category(character))
        if meant is not None:
            shows = f"looks like {meant}" if meant else "does not show"
            name = f"U+{ord(character):04X} ({unicodedata.name(character, 'without a name')})"
            return (
                f"column {column} is {name}, which {shows}",
                f"write {meant} in its place" if meant else "take it out",
            )
    return None


_ASSIGNMENT = re.compile(r"(?P<key>[\w./]+)\s*=\s*(?P<value>.*\S)")
_HEAD = run_head("finetune")
_NAME = re.compile(r"[A-Za-z_]\w*")
_PATH = re.compile(r"(?:[a-z][a-z0-9+]*://|/|\./|\.\./|~/)[\w./:~-]+")
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_UNCLEAR_WORDS = frozenset({"yes", "no", "on", "off", "inf", "nan", "infinity"})
_NAMES_OF_CALLABLES = ("_fn", "_cls", "_fns", "_def")
_WORDS = {"true": "True", "false": "False", "none": "None", "null": "None", "nil": "None"}


def _forgotten_percent(context: Context, problem: Problem) -> tuple[str, str] | None:
    """Returns the binding's key and the macro that its value has to mean, if only a ``%`` is missing."""
    match = _ASSIGNMENT.fullmatch(problem.subject.partition("#")[0].strip())
    if match is None or not _NAME.fullmatch(match["value"]):
        return None
    name = match["value"]
    if name in context.program.macros:
        return match["key"], name
    near = closest(name, context.program.macros) if name.isupper() else None
    return (match["key"], near) if near else None


_BOUND = (
    "BATCH_SIZE = 4\nfrom __gin__ import dynamic_registration\nfrom t5x import utils\n"
    "train/utils.DatasetConfig.batch_size = "
)


@Rule(
    "GIN19",
    "macro used without %",
    why="A bare word is not a Gin value. Gin's own words for it are `malformed node or string … <ast.Name object …>`.",
    bad=Example(_BOUND + "BATCH_SIZE\n", at="train/utils.DatasetConfig.batch_size"),
    good=Example(_BOUND + "%BATCH_SIZE\n"),
)
def forgotten_percent(context: Context) -> Iterator[Found]:
    """Finds each syntax error that a ``%`` fixes."""
    for problem in context.program.problems_of(ProblemKind.SYNTAX):
        if found := _forgotten_percent(context, problem):
            key, name = found
            is_macro = problem.subject.partition("#")[0].rpartition("=")[2].strip() == name
            yield Found(
                f"cannot parse `{problem.subject}`: a macro is read with %",
                problem.location,
                f"write {key} = %{name}",
                binding=key,
                edits=write_value(context.program, problem.location, f"%{name}") if is_macro else (),
            )


def _carried_over(problem: Problem) -> str | None:
    """Returns a command-line binding without the comma or quote of its argument list; None if it has neither."""
    text = problem.subject.strip()
    if problem.location.file != BINDINGS or not text.endswith((",", '"', "'", '",', "',")):
        return None
    bare = text.rstrip(",").rstrip("\"'")
    match = _ASSIGNMENT.fullmatch(bare)
    return bare if match is not None and re.fullmatch(r"[\d_.]+|True|False|None|%\w+", match["value"]) else None


@Rule(
    "VTX07",
    "comma or quote of an argument list in a binding",
    why=(
        "Arguments of a Vertex job are a Python list of strings. A quote that is left out, as in the listing of T5X's "
        'own guide (`"--gin.EVALUATOR_NUM_EXAMPLES=500,`), makes the comma a part of the value, and Gin cannot parse '
        "it."
    ),
    bad=Example(_HEAD, bindings=("EVALUATOR_NUM_EXAMPLES = 500,",), at="EVALUATOR_NUM_EXAMPLES"),
    good=Example(_HEAD, bindings=("EVALUATOR_NUM_EXAMPLES = 500",)),
)
def carried_over(context: Context) -> Iterator[Found]:
    """Finds each binding that includes a comma or a quote of its argument list."""
    for problem in context.program.problems_of(ProblemKind.SYNTAX):
        if (bare := _carried_over(problem)) is not None:
            key, _, value = bare.partition("=")
            yield Found(
                f"cannot parse `{problem.subject}`: {problem.subject.strip()[len(bare) :]} belongs to the list "
                "that the flag stands in",
                problem.location,
                f"write --gin.{key.strip()}={value.strip()} and close its quotes before the comma",
                binding=key.strip(),
            )


@Rule(
    "GIN07",
    "syntax error, or a string without quotes",
    why=(
        'The shell takes one pair of quotes away, so a string needs two: `--gin.MODEL_DIR=\\"gs://b/x\\"` or '
        "`--gin.MODEL_DIR=\"'gs://b/x'\"`. Gin answers with `malformed node` and an object's address."
    ),
    bad=Example("MODEL_DIR = gs://bucket/run\n", at="MODEL_DIR"),
    good=Example("MODEL_DIR = 'gs://bucket/run'\n"),
)
def syntax_rule(context: Context) -> Iterator[Found]:
    """Finds each syntax error that no other rule explains, and each impossible import."""
    for problem in context.program.problems_of(ProblemKind.SYNTAX):
        if _forgotten_percent(context, problem) is not None or _carried_over(problem) is not None:
            continue
        key, fix = _fix(problem)
        meant = _value_meant(context, problem)
        detail = problem.detail
        if (unseen := unseen_character(_line(context, problem), problem.detail)) is not None:
            detail, fix = unseen
        shown = problem.subject if len(problem.subject) <= 80 else f"{problem.subject[:77]}..."
        yield Found(
            f"cannot parse `{shown}`: {detail}",
            problem.location,
            fix,
            binding=key,
            edits=write_value(context.program, problem.location, meant) if meant else (),
        )
    for problem in context.program.problems_of(ProblemKind.BAD_IMPORT):
        yield Found(
            f"cannot import {problem.subject}: {problem.detail}",
            problem.location,
            "from __gin__ there is only dynamic_registration; other modules need a name other than gin",
        )


def _line(context: Context, problem: Problem) -> str:
    """Returns the line as the file has it, including its indentation."""
    lines = context.program.texts.get(problem.location.file, "").split("\n")
    found = lines[problem.location.line - 1] if problem.location.line <= len(lines) else ""
    return found if problem.subject.strip() in found else problem.subject


def _fix(problem: Problem) -> tuple[str | None, str]:
    """Returns the binding's key if it has one, and the smallest fix."""
    text = problem.subject.partition("#")[0].strip()
    match = _ASSIGNMENT.fullmatch(text)
    if problem.detail.startswith("Expected indentation"):
        return None, "bind a parameter in an indented line below the head of the block, or remove the head"
    if match is None:
        if text.startswith("include"):
            return None, "an include is followed by a file name in quotes: include 'path/file.gin'"
        return None, "a statement is `name = value`, `scope/name.parameter = value`, an import or an include"
    key, value = match["key"], match["value"]
    if value.lower() in _WORDS:
        return key, f"write {_assigned(problem, key, _WORDS[value.lower()])}"
    if re.fullmatch(r"[\w./:~-]+", value) and not value[0].isdigit():
        return key, f"a string needs quotes: {_assigned(problem, key, repr(value))}"
    if re.match(r"[rRbB]?[fF][rRbB]?['\"]", value):
        return key, f"gin has no f-strings: write the whole string, or pass --gin.{key}=\"'...'\" where it is known"
    if (call := re.fullmatch(r"(dict|list|tuple|set)\((.*)\)", value)) is not None:
        return key, f"gin calls no functions: write {_literal(*call.groups()) or 'a literal'}"
    if re.fullmatch(r"[\d_.]+(?:\s*(?:\*\*|[-+*/])\s*[\d_.]+)+", value):
        return key, "gin does not calculate: write the result as one number"
    if problem.detail.startswith("EOF in multi-line"):
        return key, "close the bracket that is opened in this statement"
    return key, "the value has to be a Python literal, %MACRO, @reference or @reference()"


def _literal(function: str, inside: str) -> str | None:
    """Returns the text of a literal that equals a call of ``dict`` with keywords; None for anything less plain."""
    pair = r"(\w+)\s*=\s*([\w.'\"]+)"
    pairs = re.findall(pair, inside)
    if function != "dict" or not pairs or re.sub(pair, "", inside).strip(", "):
        return None
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in pairs) + "}"


def _value_meant(context: Context, problem: Problem) -> str | None:
    """Returns the value as gin text if a word can only be a string or a Python constant; None otherwise.

    A dotted name may have lost its ``@``, a word in capitals its ``%``, and a function's name both its ``@`` and its
    module.
    """
    match = _ASSIGNMENT.fullmatch(problem.subject.partition("#")[0].strip())
    if match is None:
        return None
    key, value = match["key"], match["value"]
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if _PATH.fullmatch(value):
        return repr(value)
    is_word = _WORD.fullmatch(value) and value not in _UNCLEAR_WORDS
    if not is_word or key.endswith(_NAMES_OF_CALLABLES) or context.snapshot.suffixes(value):
        return None
    return None if meant(value, context.program.macros) else repr(value)


def _assigned(problem: Problem, key: str, value: str) -> str:
    """Returns an assignment as the user has to type it; on the command line, the shell removes the outer quotes."""
    if problem.location.file == BINDINGS:
        return f'--gin.{key}="{value}"'
    return f"{key} = {value}"
