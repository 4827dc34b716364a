"""The mistakes that can be made with each kind of part of a syntax tree."""

import ast
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .source import Source

_ALIKE = (
    ("ByteVocabulary", "PassThroughVocabulary"),
    ("append_eos", "append_eos_after_trim", "tokenize"),
    ("from_tensor_slices", "from_tensors"),
    ("int32", "int64", "float32", "string"),
    ("Feature", "ContinuousFeature"),
    ("mean", "sum"),
    ("map", "filter", "flat_map"),
)
"""Attributes that are taken for each other."""

_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Pow, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv}
_COMPARISONS = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.Lt: ast.LtE, ast.Gt: ast.GtE}
_VALUES = (("None", "None"), ("a number", "7"), ("a text", "'text'"), ("an empty list", "[]"))
_RETURNS = (
    *_VALUES,
    ("an empty dict", "{}"),
    ("NaN", "float('nan')"),
    ("an array", "__import__('numpy').ones(3)"),
)
_DATASETS = (
    ("nothing", ".take(0)"),
    ("one example", ".take(1)"),
    ("no end", ".repeat()"),
    ("batches", ".batch(2)"),
    ("tuples", ".map(lambda e: tuple(e.values()))"),
    ("other types", ".map(lambda e: {k: tf.strings.length(tf.strings.as_string(v)) for k, v in e.items()})"),
    ("other keys", ".map(lambda e: {k + '_': v for k, v in e.items()})"),
)
_SOURCE = "FunctionDataSource"


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A mistake in one place.

    Attributes:
      word: the mistake, in words.
      changes: the parts of the tree to replace, with their new texts; the first one is the mistake's place.
      names: the names that it is about.
      below: how many lines below the beginning of that place the mistake is.
    """

    word: str
    changes: Sequence[tuple[ast.AST, str]]
    names: tuple[str, ...] = ()
    below: int = 0


def mutations_of(source: Source, node: ast.AST) -> Iterator[Mutation]:
    """Yields all mistakes that can be made with a part of a syntax tree."""
    for kind, mutate in _OF_KIND:
        if isinstance(node, kind):
            yield from mutate(source, node)


def _of_call(source: Source, node: ast.Call) -> Iterator[Mutation]:
    function, name = source.of(node.func), _name(node.func)
    parts = [*node.args, *node.keywords]
    texts = [source.of(part) for part in parts]

    def called(word: str, arguments: Sequence[str], *names: str, by: str = function) -> Mutation:
        return Mutation(word, [(node, f"{by}({', '.join(arguments)})")], (*names, name))

    yield Mutation("not called", [(node, function)], (name,))
    yield called("argument too many", [*texts, "extra=1"], "extra")
    for number, part in enumerate(parts):
        yield called("argument missing", texts[:number] + texts[number + 1 :], getattr(part, "arg", None) or name)
    if len(node.args) > 1:
        yield called("arguments exchanged", [texts[1], texts[0], *texts[2:]])
    if name == "partial" and texts:
        first = _name(node.args[0])
        yield Mutation("partial missing", [(node, texts[0])], (first, *(k.arg or "" for k in node.keywords)))
        yield called("called too early", texts[1:], first, by=texts[0])


def _of_keyword(source: Source, node: ast.keyword) -> Iterator[Mutation]:
    if node.arg:
        wrong = misspelt(node.arg)
        yield Mutation("keyword misspelt", [(node, f"{wrong}={source.of(node.value)}")], (node.arg, wrong))
        yield from _other_values(source, node.value, node.arg)


def _of_sequence(source: Source, node: ast.List | ast.Tuple) -> Iterator[Mutation]:
    if not isinstance(node.ctx, ast.Load):
        return
    texts = [source.of(each) for each in node.elts]
    opened, closed = ("[", "]") if isinstance(node, ast.List) else ("(", ",)")
    for number, each in enumerate(node.elts):
        name = _name(each)
        rest = ", ".join(texts[:number] + texts[number + 1 :])
        yield Mutation("element missing", [(node, f"{opened}{rest}{closed if rest else closed[-1]}")], (name,))
        yield Mutation("element twice", [(each, f"{texts[number]}, {texts[number]}")], (name,))
        if isinstance(each, (ast.Name, ast.Attribute)):
            yield Mutation("called too early", [(each, f"{texts[number]}()")], (name,))
        if number + 1 < len(texts):
            exchanged = [(each, texts[number + 1]), (node.elts[number + 1], texts[number])]
            yield Mutation("out of order", exchanged, (name, _name(node.elts[number + 1])))
        yield from _other_values(source, each, name)


def _of_dict(source: Source, node: ast.Dict) -> Iterator[Mutation]:
    keys = [source.of(key) if key else "" for key in node.keys]
    values = [source.of(value) for value in node.values]
    items = [f"{key}: {value}" if key else f"**{value}" for key, value in zip(keys, values, strict=True)]
    for number, key in enumerate(node.keys):
        name = _name(key)
        rest = ", ".join(items[:number] + items[number + 1 :])
        yield Mutation("key missing", [(node, f"{{{rest}}}")], (name,))
        yield Mutation("value in a list", [(node.values[number], f"[{values[number]}]")], (name,))
        if number + 1 < len(keys) and key:
            other = node.keys[number + 1]
            yield Mutation("key twice", [(other, keys[number])], (name, _name(other)))
            exchanged = [(node.values[number], values[number + 1]), (node.values[number + 1], values[number])]
            yield Mutation("values exchanged", exchanged, (name, _name(other)))
        yield from _other_values(source, node.values[number], name)
    yield Mutation("key too many", [(node, f"{{{', '.join([*items, repr('extra') + ': ' + values[0]])}}}")], ("extra",))


def _of_constant(source: Source, node: ast.Constant) -> Iterator[Mutation]:
    above = next(source.above(node), None)
    if isinstance(above, (ast.Expr, ast.JoinedStr, ast.FormattedValue)):
        return
    names = (str(node.value), *((above.arg or "",) if isinstance(above, ast.keyword) else ()))
    for word, new in _other_constants(node.value):
        yield Mutation(word, [(node, new)], (*names, new.strip("'")))


def _other_constants(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield from (("bool negated", repr(not value)), ("bool quoted", repr(str(value))))
    elif isinstance(value, str):
        yield from (("string misspelt", repr(misspelt(value))), ("string empty", "''"))
        yield from (("string as bytes", f"b{value!r}"), ("number for a string", "7"), ("None for a string", "None"))
    elif isinstance(value, (int, float)):
        yield from (("off by one", repr(value + 1)), ("off by one", repr(value - 1)), ("zero", "0"))
        yield from (("negative", f"-{value + 1}"), ("huge", repr(value * 1000 + 1000)), ("quoted", repr(str(value))))
        yield "other kind of number", repr(float(value) if isinstance(value, int) else int(value))


def _of_name(source: Source, node: ast.Name | ast.Attribute) -> Iterator[Mutation]:
    name = _name(node)
    if not isinstance(node.ctx, ast.Load):
        return
    front = f"{source.of(node.value)}." if isinstance(node, ast.Attribute) else ""
    yield Mutation("name misspelt", [(node, front + misspelt(name))], (name, misspelt(name)))
    for alike in _ALIKE:
        for other in alike if front and name in alike else ():
            yield Mutation("name of another", [(node, front + other)], (name, other))


def _of_function(source: Source, node: ast.FunctionDef) -> Iterator[Mutation]:
    every = [*node.args.args, *node.args.kwonlyargs]
    for number, each in enumerate(every):
        uses = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == each.arg]
        other = misspelt(each.arg)
        renamed = [(each, other), *((use, other) for use in uses)]
        yield Mutation("parameter with another name", renamed, (each.arg, other, node.name))
        fewer = copy.deepcopy(node.args)
        if number < len(fewer.args):
            of_default = number - (len(fewer.args) - len(fewer.defaults))
            del fewer.args[number]
            if of_default >= 0:
                del fewer.defaults[of_default]
            yield Mutation("parameter missing", [(node.args, ast.unparse(fewer))], (each.arg, node.name))
    if every:
        text = source.of(node.args)
        yield Mutation("parameter too many", [(node.args, f"extra, {text}")], ("extra", node.name))
        required = copy.deepcopy(node.args)
        required.defaults = []
        yield Mutation("default missing", [(node.args, ast.unparse(required))], (node.name,))
        turned = copy.deepcopy(node.args)
        turned.args[:2] = turned.args[1::-1]
        yield Mutation("parameters exchanged", [(node.args, ast.unparse(turned))], (node.name,))
    for decorator in node.decorator_list:
        bare = copy.deepcopy(node)
        bare.decorator_list = []
        yield Mutation("decorator missing", [(node, _below(source, node, ast.unparse(bare)))], (node.name,))
        called = f"@{source.of(decorator)}()\n{source.indent(node)}"
        yield Mutation("decorator called", [(node, called + source.of(node).split("\n", 1)[1])], (node.name,))
    first = node.body[0]
    raising = f"raise ValueError('a bad day')\n{source.indent(first)}{source.of(first)}"
    yield Mutation("raises", [(first, raising)], (node.name, "a bad day"))


def _of_return(source: Source, node: ast.Return) -> Iterator[Mutation]:
    if node.value is None:
        return
    text = source.of(node.value)
    function = next(each for each in source.above(node) if isinstance(each, (ast.FunctionDef, ast.Lambda)))
    names = (getattr(function, "name", ""),)
    for word, new in _RETURNS:
        yield Mutation(f"returns {word}", [(node.value, new)], names)
    yield Mutation("returns a list", [(node.value, f"[{text}]")], names)
    yield Mutation("yields", [(node, f"yield {text}")], names)
    if isinstance(node.value, ast.Dict):
        for value in node.value.values:
            for word, new in _RETURNS:
                yield Mutation(f"returns {word} in a dict", [(value, new)], names)
    if _is_source(source, names[0]):
        for word, new in _DATASETS:
            yield Mutation(f"source of {word}", [(node.value, text + new)], names)


def _of_block(source: Source, node: ast.Module | ast.FunctionDef | ast.For) -> Iterator[Mutation]:
    for number, each in enumerate(node.body):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            continue
        text, indent = source.of(each), source.indent(each)
        names = _names_of(each)
        yield Mutation("statement missing", [(each, "pass")], names)
        yield Mutation("statement twice", [(each, f"{text}\n{indent}{text}")], names, below=text.count("\n") + 1)
        if number + 1 < len(node.body):
            other = node.body[number + 1]
            yield Mutation("statements exchanged", [(each, source.of(other)), (other, text)], names + _names_of(other))


def _of_operator(_: Source, node: ast.BinOp | ast.Compare) -> Iterator[Mutation]:
    other = copy.deepcopy(node)
    if isinstance(other, ast.BinOp):
        other.op = _OPERATORS.get(type(other.op), ast.Add)()
    else:
        other.ops[0] = _COMPARISONS.get(type(other.ops[0]), ast.NotEq)()
    yield Mutation("another operator", [(node, f"({ast.unparse(other)})")])


def _of_subscript(source: Source, node: ast.Subscript) -> Iterator[Mutation]:
    yield Mutation("index missing", [(node, source.of(node.value))], (_name(node.value),))


def _other_values(source: Source, node: ast.AST, name: str) -> Iterator[Mutation]:
    """Yields other values in place of one; those of a constant are not written here."""
    if not isinstance(node, ast.Constant):
        for word, new in _VALUES:
            yield Mutation(f"{word} for it", [(node, new)], (name, _name(node)))
        yield Mutation("in a list", [(node, f"[{source.of(node)}]")], (name, _name(node)))


def _names_of(statement: ast.stmt) -> tuple[str, ...]:
    """Returns the names that a statement binds or, if it binds none, uses."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return tuple(each.asname or each.name for each in statement.names)
    if isinstance(statement, ast.FunctionDef):
        return (statement.name,)
    bound = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    first = [n.value for n in ast.walk(statement) if isinstance(n, ast.Constant) and isinstance(n.value, str)][:1]
    return tuple(bound or first)


def _is_source(source: Source, name: str) -> bool:
    calls = (n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and _name(n.func) == _SOURCE)
    return any(_name(argument) == name for call in calls for argument in call.args)


def _below(source: Source, node: ast.FunctionDef, text: str) -> str:
    """Returns a function's text, moved down to where its ``def`` is."""
    return "\n" * len(node.decorator_list) + text.replace("\n", f"\n{source.indent(node)}")


def _name(node: ast.AST | None) -> str:
    """Returns the last name of what a part of the tree calls or is."""
    if isinstance(node, ast.Call):
        return _name(node.args[0]) if _name(node.func) == "partial" and node.args else _name(node.func)
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def misspelt(name: str) -> str:
    """Returns a name with its two middle characters exchanged, or with one more where that changes nothing."""
    middle = len(name) // 2
    swapped = name[: middle - 1] + name[middle : middle + 1] + name[middle - 1 : middle] + name[middle + 1 :]
    return swapped if len(name) > 1 and swapped != name else f"{name}x"


_OF_KIND: tuple[tuple[type | tuple[type, ...], Callable[[Source, Any], Iterator[Mutation]]], ...] = (
    (ast.Call, _of_call),
    (ast.keyword, _of_keyword),
    ((ast.List, ast.Tuple), _of_sequence),
    (ast.Dict, _of_dict),
    (ast.Constant, _of_constant),
    ((ast.Name, ast.Attribute), _of_name),
    (ast.FunctionDef, _of_function),
    (ast.Return, _of_return),
    ((ast.Module, ast.FunctionDef, ast.For), _of_block),
    ((ast.BinOp, ast.Compare), _of_operator),
    (ast.Subscript, _of_subscript),
)
