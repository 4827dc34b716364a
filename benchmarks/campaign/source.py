"""A task module as text and as its syntax tree, so that a part of the tree is replaced where it stands in the text."""

import ast
from collections.abc import Iterator


class Source:
    """The text of a Python module.

    Args:
      text: the text, in ASCII.
    """

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self._text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._above = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def of(self, node: ast.AST) -> str:
        """Returns the text of a part of the tree."""
        start, end = self._span(node)
        return self._text[start:end]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the parts of the tree around one, from the inside, without the module."""
        while (node := self._above.get(node, self.tree)) is not self.tree:
            yield node

    def readers(self, statement: ast.AST) -> list[str]:
        """Returns the names of the functions that read the constant that a statement of the module defines."""
        targets = statement.targets if isinstance(statement, ast.Assign) and statement in self.tree.body else ()
        constants = {target.id for target in targets if isinstance(target, ast.Name)}
        functions = [each for each in ast.walk(self.tree) if isinstance(each, ast.FunctionDef)]
        return [f.name for f in functions if any(getattr(n, "id", None) in constants for n in ast.walk(f))]

    def line(self, node: ast.AST) -> int:
        """Returns the line where a part of the tree begins; for a function, that of its first decorator."""
        return self._text.count("\n", 0, self._span(node)[0]) + 1

    def indent(self, node: ast.AST) -> str:
        """Returns the white space in front of a statement."""
        return self._text[self._starts[self.line(node) - 1] : self._span(node)[0]]

    def replaced(self, *changes: tuple[ast.AST, str]) -> str | None:
        """Returns the text with other texts in place of parts of the tree; None if that is not another program."""
        text = self._text
        for node, new in sorted(changes, key=lambda change: -self._span(change[0])[0]):
            start, end = self._span(node)
            text = text[:start] + new + text[end:]
        try:
            changed = ast.dump(ast.parse(text))
        except (SyntaxError, ValueError):
            return None
        return text if changed != ast.dump(self.tree) else None

    def _span(self, node: ast.AST) -> tuple[int, int]:
        if isinstance(node, ast.arguments):
            parts = [n for n in ast.walk(node) if hasattr(n, "lineno")]
            spans = [self._span(part) for part in parts]
            return min(start for start, _ in spans), max(end for _, end in spans)
        start = self._starts[node.lineno - 1] + node.col_offset
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            start = self._span(node.decorator_list[0])[0] - len("@")
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset
