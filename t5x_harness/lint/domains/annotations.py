"""What the annotation of a parameter says about its values, as the text of a domain."""

import ast
import functools

from t5x_harness.lint.domains.language import Domain, parse

_PLAIN = {"int": "int", "float": "float", "bool": "bool", "str": "str", "None": "None", "Callable": "@"}
_LISTS = frozenset({"list", "tuple", "List", "Tuple", "Sequence", "Iterable", "Collection"})
_DICTS = frozenset({"dict", "Dict", "Mapping"})


@functools.lru_cache(maxsize=1024)
def annotated(annotation: str) -> Domain | None:
    """Returns the values that an annotation allows, and None, which many write for no value at all.

    Args:
      annotation: its source, such as ``Optional[Sequence[int]]``.

    Returns:
      The domain; None if it has a type that is not known here.
    """
    try:
        text = _domain(ast.parse(annotation, mode="eval").body)
    except SyntaxError:
        return None
    return parse(f"{text} | None") if text is not None else None


def _domain(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # an annotation in quotes
        return _domain(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _any_of([_domain(node.left), _domain(node.right)])
    if not isinstance(node, ast.Subscript):
        name = _last(node)
        return _PLAIN.get(name) or ("[any]" if name in _LISTS else "{any: any}" if name in _DICTS else None)
    name = _last(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        values = [part.value if isinstance(part, ast.Constant) else None for part in parts]
        words = [f"'{each}'" for each in values if isinstance(each, str) and "'" not in each]
        return " | ".join(words) if len(words) == len(parts) else None
    if name == "Callable":
        return "@"
    inner = [_domain(part) or "any" for part in parts]
    if name in ("Optional", "Union"):
        return _any_of([*map(_domain, parts), "None"] if name == "Optional" else list(map(_domain, parts)))
    if name in _LISTS:
        return f"[{inner[0]}]"
    return f"{{{inner[0]}: {inner[-1]}}}" if name in _DICTS else None


def _any_of(alternatives: list[str | None]) -> str | None:
    return None if None in alternatives else " | ".join(map(str, alternatives))


def _last(node: ast.expr) -> str:
    """Returns the last name of ``typing.Sequence`` and its like; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr if isinstance(node.value, ast.Name) else ""
    return node.id if isinstance(node, ast.Name) else ""
