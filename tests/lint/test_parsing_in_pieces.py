"""A text that is parsed in pieces, and plain bindings without Gin's parser, gives what Gin's parser makes of it all."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t5x_harness.gin import parsing

_NAMES = ("A", "a.b", "s/a.b", "s/t/m.f.x", "a.b/c", "include", "from", "True", "a..b", "a/ b", "é", "_1", "1a", "a.1")
_ITEMS = (
    *("0", "-0", "7", "-12_000", "1__0", "00", "0.5", "1.", ".5", "1e-3", "1E4", "1e", "0x1f", "1j", "9" * 40),
    *(
        "'a'",
        '"b"',
        "''",
        "''''''",
        "'a' 'b'",
        "'it''s'",
        "'\\n'",
        "'#'",
        '"\'"',
        "r'x'",
        "b'x'",
        "'é'",
        "'''\nA = 1\n'''",
    ),
    *("True", "None", "Truer", "x", "@a", "@a.b()", "@s/m.f()", "@a.b/c", "@ a", "@a ()", "@a(1)", "@", "%A", "%s/A"),
    *("%A()", "% A", "%gin.REQUIRED", "-@a", "- 1", "--1", "(", "]", "{", "{'a': @a, 'a': 1}", "{1: 2}", "()", "[]"),
    *("(1)", "(1,)", "[1, @a()]", "[\n1,\n# c\n2]", "[\nA = 1\n]", "[1,]", "[ 1 , 2 ]", "[[1], 2]", "1 2", "\\\n1", ""),
)
_ITEM = st.sampled_from(_ITEMS)
_LIST = st.lists(_ITEM, max_size=4).map(lambda items: f"[{', '.join(items)}]")
_SPACE = st.sampled_from(("", " ", "  ", "\t", "\f", "\\\n"))
_END = st.sampled_from(
    ("", "\n", "\n\n", " # c\n", "# é\n", "\n# A = 1\n", "\n  # c\n", "\n\f\n", "\r\n", " ;", " \\\n")
)
_BINDING = st.tuples(_SPACE, st.sampled_from(_NAMES), _SPACE, st.just("="), _SPACE, _ITEM | _LIST, _END).map("".join)
_OTHER = st.sampled_from(
    (
        *(
            "import a.b\n",
            "import a as b # c\n",
            "from a import b\n",
            "include 'a.gin'\n",
            "include 'a' 'b'\n",
            "import\n",
        ),
        *("a.b:\n", "s/a.b:\n  x = 1\n", "a:\n  x = 1\n\n  # c\n# d\n  y = [@b,\n1]\n", "  x = @a()\n", "    y = 2\n"),
        *(
            "'''",
            '"""\n',
            "[",
            "]\n",
            "}",
            "(\n",
            ")",
            "# c\n",
            "\n",
            "\\",
            "\\\n",
            "A",
            "A = \\\n",
            ":",
            "é = 1\n",
            "$\n",
        ),
    )
)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=500, deadline=None)
@given(st.lists(_BINDING | _OTHER, max_size=6).map("".join) | st.text("ab=1'\"[](){}:.,@%/#\\ \n\r\f\t_-é\0"))
@example("A = '''\nB = 1\nC = '''\nD = 2\n")
@example("A = [\nB = 1\n]\n")
@example("a:\n  x = {'k': @lost, 'k': 1}\n  y = 1\nB = 2")
@example("A = 1 \\\nB = 2\n")
@example("A = 1\n  B = 2\nC = 3\n")
def test_pieces_give_the_statements_and_problems_of_the_whole_text(text: str) -> None:
    assert repr(parsing.parse(text)) == repr(parsing.parse_whole(text))


def test_a_plain_binding_is_read_without_gin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "s/m.f.x = [@p/m.g(), %A, -1.5e3, 'a', True]  # c\n\nB = 1\n"
    expected = parsing.parse_whole(text)
    monkeypatch.setattr(parsing.config_parser, "ConfigParser", None)
    assert parsing.parse(text) == expected
