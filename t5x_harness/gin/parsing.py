"""Gin's own parser over one text: every statement it can read, and every syntax error instead of only the first."""

import ast
import dataclasses
import functools
import re
import tokenize
import warnings
from typing import Any

from gin import config_parser

from t5x_harness.gin.values import Macro, Reference, references_in

_STATEMENT = re.compile(r"(?:import|from|include)\s|[A-Za-z_][\w./]*\s*[=:]")
_MOST_ERRORS = 20  # in one file; more are noise

# Where the pieces of a text begin. A line inside brackets or a string may look like that, too.
_PIECE = re.compile(r"^(?=[A-Za-z_])", re.MULTILINE)

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_NUMBER = r"-?(?:0|[1-9](?:_?[0-9]){,30})(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_STRING = r"'[ -&(-\[\]-~]*'|\"[ !#-\[\]-~]*\""
_ITEM = rf"(?:{_STRING}|{_NUMBER}|True|False|None|@(?:{_NAME}/)*{_NAME}(?:\(\))?|%(?:{_NAME}/)*{_NAME})"
_ITEMS = re.compile(_ITEM, re.ASCII)
_REST = r" *(?:#[ -~]*)?"
_VALUE = rf"= *({_ITEM}|\[(?:{_ITEM}(?:, *{_ITEM})*)?\]){_REST}"
_KEY = rf"((?:[A-Za-z_]\w*/)*{_NAME})"
# Lines of ASCII: a binding, the head of a block, a binding in the block, and what Gin skips. Values are single items,
# or lists of them.
_BINDING = re.compile(rf"{_KEY} *{_VALUE}", re.ASCII)
_HEAD = re.compile(rf"{_KEY} *:{_REST}", re.ASCII)
_PARAMETER = re.compile(rf"( +)([A-Za-z_]\w*) *{_VALUE}", re.ASCII)
_SKIPPED = re.compile(_REST)

# Before Python 3.12, an f-string is one token, like other strings.
_F_STRING = getattr(tokenize, "FSTRING_START", None)


@dataclasses.dataclass(frozen=True)
class SyntaxProblem:
    """A place that Gin's parser refuses, with the text of its line and the parser's words."""

    line: int
    text: str
    message: str


class _Delegate(config_parser.ParserDelegate):  # type: ignore[misc]
    """Keeps references and macros as values instead of looking them up, and notes each reference with its line."""

    def __init__(self) -> None:
        self.parser: config_parser.ConfigParser | None = None
        self.references: list[tuple[int, Reference]] = []

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        assert self.parser is not None
        reference = _reference(scoped_configurable_name, evaluate)
        self.references.append((self.parser.current_token.start[0], reference))
        return reference

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


def _reference(name: str, called: bool) -> Reference:
    scope, _, selector = name.rpartition("/")
    return Reference(scope, selector, called)


# The errors of the parser and its tokenizer for bad text; a value that cannot be a dict key raises a TypeError.
_PARSE_ERRORS = (
    *(SyntaxError, tokenize.TokenError, ValueError, TypeError),
    *(AssertionError, StopIteration, IndexError, RecursionError),
)


@functools.lru_cache(maxsize=1024)  # the runs of a call include the same few files
def parse(text: str) -> tuple[tuple[Any, ...], tuple[SyntaxProblem, ...]]:
    """Parses Gin text.

    After an error, the parser resumes at the next line that looks like a statement, so one pass shows all errors.

    Args:
      text: the text, with newlines as line ends, as Python reads text files; Gin accepts no other line ends.

    Returns:
      Gin's statements in order, with macros and references of this project's types, and the syntax problems in order,
      with lines counted from 1. The same text gives the same objects, so their values must not be changed. A reference
      that a later item of its dict replaces, for they have one key, is added as the head of a block that binds
      nothing: Gin looks it up all the same.
    """
    pieces = _parse_in_pieces(text.removesuffix("\n") + "\n")
    return parse_whole(text) if pieces is None else (pieces, ())


def parse_whole(text: str) -> tuple[tuple[Any, ...], tuple[SyntaxProblem, ...]]:
    """Parses Gin text with Gin's parser alone, as :func:`parse` does if there is an error in it."""
    lines = text.removesuffix("\n").split("\n")
    statements: list[Any] = []
    problems: list[SyntaxProblem] = []
    start = 0
    while start < len(lines) and len(problems) < _MOST_ERRORS:
        parsed, problem = _parse_from(lines, start)
        statements.extend(parsed)
        if problem is None:
            break
        problems.append(problem)
        after = range(problem.line, len(lines))
        start = next((index for index in after if _STATEMENT.match(lines[index])), len(lines))
    return tuple(statements), tuple(problems)


def _parse_in_pieces(text: str) -> tuple[Any, ...] | None:
    """Parses each piece of a text alone, as most texts share most of their pieces; None if one of them has an error.

    Such a piece may end inside brackets or a string. Without errors, a piece ends where a statement does, so that the
    next one means the same alone as below it.
    """
    statements: list[Any] = []
    above = 0
    for piece in filter(None, _PIECE.split(text)):  # nothing is above a text that begins with a statement
        if (plain := _parse_plainly(piece, above + 1)) is not None:
            statements += plain
        elif (parsed := _parse_piece(piece)) is not None:
            for each in parsed:
                at = each.location._replace(line_num=above + each.location.line_num)
                statements.append(each._replace(location=at))
        else:
            return None
        above += piece.count("\n")
    return tuple(statements)


def _parse_plainly(piece: str, line: int) -> list[Any] | None:
    """Parses a plain binding or block far faster than Gin, whose tokenizer is in Python; None for any other text."""
    first, *others = piece[:-1].split("\n")
    where = config_parser.Location(None, line, None, f"{first}\n")
    statements: list[Any] = []
    if binding := _BINDING.fullmatch(first):
        key = config_parser.parse_binding_key(binding[1])
        statements.append(config_parser.BindingStatement(*key, _value(binding[2]), where))
    elif head := _HEAD.fullmatch(first):
        name = config_parser.parse_scoped_selector(head[1])
        statements.append(config_parser.BlockDeclaration(*name, where))
    else:
        return None
    indents = set()
    for number, text in enumerate(others, line + 1):
        if _SKIPPED.fullmatch(text):
            continue
        parameter = _PARAMETER.fullmatch(text) if binding is None else None
        if parameter is None:
            return None
        indents.add(indent := len(parameter[1]))
        where = config_parser.Location(None, number, indent, f"{text}\n")
        statements.append(config_parser.BindingStatement(*name, parameter[2], _value(parameter[3]), where))
    return statements if len(indents) == (binding is None) else None


def _value(text: str) -> Any:
    return [_item(each) for each in _ITEMS.findall(text)] if text[0] == "[" else _item(text)


def _item(text: str) -> Any:
    if text.isdigit():
        return int(text)
    if text[0] == "@":
        return _reference(text[1:].removesuffix("()"), text.endswith("()"))
    return Macro(text[1:]) if text[0] == "%" else ast.literal_eval(text)


@functools.lru_cache(maxsize=4096)
def _parse_piece(piece: str) -> tuple[Any, ...] | None:
    statements, problem = _parse_from(piece.split("\n")[:-1], 0)
    return tuple(statements) if problem is None else None


def _parse_from(lines: list[str], start: int) -> tuple[list[Any], SyntaxProblem | None]:
    statements: list[Any] = []
    source = "\n" * start + "\n".join(lines[start:]) + "\n"
    parser: config_parser.ConfigParser | None = None
    delegate = _Delegate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a string such as '\d' would cause a warning about a line of the harness
        try:
            delegate.parser = parser = config_parser.ConfigParser(source, delegate)
            while (statement := parser.parse_statement()) is not None:
                statements.append(statement)
        except _PARSE_ERRORS as error:
            line = min(max(_error_line(error, parser), start + 1), len(lines))
            while line > start + 1 and not lines[line - 1].strip():
                line -= 1  # unfinished text is at fault at its end
            return statements, SyntaxProblem(line, lines[line - 1], _words(error, parser))
    # A block's statements are all parsed before the first of them is returned, so all are compared at the end.
    kept = {id(reference) for each in statements for reference in references_in(getattr(each, "value", None))}
    for line, lost in delegate.references:
        if id(lost) not in kept:
            where = config_parser.Location(None, line, None, lines[line - 1])
            statements.append(config_parser.BlockDeclaration(lost.scope, lost.selector, where))
    return sorted(statements, key=lambda each: each.location.line_num), None


def _error_line(error: BaseException, parser: config_parser.ConfigParser | None) -> int:
    """Returns the line of an error, which Gin and the tokenizer store in different places."""
    for where in (*error.args[1:], getattr(error, "lineno", None)):
        if isinstance(where, int):
            return where
        if isinstance(where, tuple) and len(where) == 2:  # the tokenizer's (line, column)
            return int(where[0])
        if isinstance(where, tuple) and len(where) >= 4 and isinstance(where[1], int):  # (file, line, column, text)
            return where[1]
    return int(parser.current_token.start[0]) if parser is not None and parser.current_token is not None else 1


def _words(error: BaseException, parser: config_parser.ConfigParser | None) -> str:
    """Describes an error in the same words on every Python, although 3.12 has another tokenizer."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, StopIteration):
        return "the statement ends too early"
    text = str(error.args[0]) if error.args else type(error).__name__
    first = text.splitlines()[0] if text else type(error).__name__
    token = parser.current_token if parser is not None else None
    if "malformed node" in first or (token is not None and token.type == _F_STRING):
        return "not a Python literal"
    if first == "too many nested parentheses":
        return "nested too deeply"
    return first.removeprefix("unexpected ").rstrip(".")
