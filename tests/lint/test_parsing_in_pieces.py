"""A text that is parsed in pieces, and plain bindings without Gin's parser, gives what Gin's parser makes of it all."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t5x_harness.gin import parsing


def _often(usual: tuple[str, ...], odd: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Draws what parses nine times as often as what may not, for one error makes Gin parse the whole text."""
    return st.integers(0, 9).flatmap(lambda number: st.sampled_from(usual if number else odd))


# fmt: off
_NAME = _often(("A", "a.b", "s/a.b", "s/t/m.f.x", "include", "True"), ("a.b/c", "a..b", "a/ b", "é", "1a", "a.1"))
_ITEM = _often(
    (
        "0", "-0", "7", "-12_000", "0.5", "1.", ".5", "1e-3", "1E4", "0x1f", "1j", "9" * 40, "True", "None", "- 1",
        "'a'", '"b"', "''", "''''''", "'a' 'b'", "'it''s'", "'\\n'", "'#'", '"\'"', "r'x'", "b'x'", "'é'",
        "'''\nA = 1\n'''",
        "@a", "@a.b()", "@s/m.f()", "@a.b/c", "@ a", "@a ()", "%A", "%s/A", "% A", "%gin.REQUIRED",
        "{'a': @a, 'a': 1}", "{1: [2]}", "()", "[]", "(1)", "(1,)", "[1, @a()]", "[\n1,\n# c\n2]", "[1,]", "[ 1 , 2 ]",
    ),
    ("1__0", "00", "1e", "Truer", "x", "@a(1)", "@", "%A()", "-@a", "--1", "(", "]", "{", "[\nA = 1\n]", "1 2", ""),
)
_SPACE = _often(("", " ", " ", "  "), ("\t", "\f", "\\\n"))
_END = _often(("\n", "\n\n", " # c\n", "# é\n", "\n# A\n", "\n  # c\n", "\n \n", "\n\f\n"), ("", "\r\n", " ;", " \\\n"))
_OTHER = _often(
    ("import a.b\n", "import a as b # c\n", "from a import b\n", "include 'a'\n", "include 'a' 'b'\n", "# c\n", "\n"),
    ("import\n", "  x = 1\n", "'''", '"""\n', "[", "]\n", "(\n", ")", "\\", "A", "A = \\\n", ":", "é = 1\n", "$\n"),
)
# fmt: on
_LIST = st.lists(_ITEM, max_size=4).map(lambda items: f"[{', '.join(items)}]")
_BOUND = st.tuples(_SPACE, st.just("="), _SPACE, _ITEM | _LIST, _END).map("".join)
_BINDING = st.tuples(_NAME, _BOUND).map("".join)
_PARAMETER = st.tuples(_often(("  ",), ("", " ", "\t")), _often(("x", "y_1"), ("x.y", "s/x")), _BOUND).map("".join)
_BLOCK = st.tuples(_NAME, _SPACE, st.just(":"), _END, st.lists(_PARAMETER, min_size=1, max_size=3).map("".join)).map(
    "".join
)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=300, deadline=None)
@given(st.lists(_BINDING | _BLOCK | _OTHER, max_size=5).map("".join) | st.text("ab=1'\"[](){}:.,@%/#\\ \n\r\f\t_-é\0"))
@example("A = '''\nB = 1\nC = '''\nD = 2\n")
@example("A = [\nB = 1\n]\n")
@example("a:\n  x = {'k': @lost, 'k': 1}\n  y = 1\nB = 2")
@example("A = 1 \\\nB = 2\n")
@example("A = 1\n  B = 2\nC = 3\n")
@example("a:\n  x = 1\n   y = 2\n")
def test_pieces_give_the_statements_and_problems_of_the_whole_text(text: str) -> None:
    assert repr(parsing.parse(text)) == repr(parsing.parse_whole(text))


def test_plain_bindings_are_parsed_without_gin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "s/m.f.x = [@p/m.g(), %A, -1.5e3, 'a', True]  # c\n\nm.f:\n  # c\n  x = 'b'\n\n  y = None\nB = 1\n"
    expected = parsing.parse_whole(text)
    monkeypatch.setattr(parsing.config_parser, "ConfigParser", None)
    parsing.parse.cache_clear()
    assert parsing.parse(text) == expected
