"""Parameters of the user's own functions are known from their source, without importing it, where that is certain."""

from __future__ import annotations

import pytest
from linting import RUN, Folder

_HEAD = RUN + "import mine\n"

# Symbols that have exactly the parameters x and y.
_CERTAIN = {
    "a function": "def it(x, y=1): ...",
    "keyword-only and positional-only": "def it(x, /, *args, y=1): ...",
    "a class": "class it:\n  def __init__(self, x, y=1): ...",
    "a class below object": "class it(object):\n  size = 3\n  def __init__(self, x, *, y): ...\n  def f(self, z): ...",
    "a dataclass": "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass it:\n  x: int\n  y: int = 1",
    "a dataclass by name": "from dataclasses import dataclass\n@dataclass\nclass it:\n  x: int\n  y: int = 1",
    "a class variable": "import dataclasses as d\n@d.dataclass\nclass it:\n  x: int\n  y: int\n  z: ClassVar[int]",
    "a Flax module": "from flax import linen as nn\nclass it(nn.Module):\n  x: int\n  y: int\n  def f(self, z): ...",
    "a configurable": "import gin\n@gin.configurable('other', module='name')\ndef it(x, y=1): ...",
    "from elsewhere": "from mine_too import other as it",
}

# Symbols that may take z too, or that say nothing for certain.
_UNCERTAIN = {
    "any keyword": "def it(x, **more): ...",
    "a decorator": "import functools\n@functools.cache\ndef it(x): ...",
    "a partial": "import functools\ndef f(x, z): ...\nit = functools.partial(f, 1)",
    "defined twice": "def it(x): ...\ndef it(z): ...",
    "replaced below": "def it(x): ...\nit = lambda z: z",
    "under a condition": "def it(x): ...\nif True:\n  def it(z): ...",
    "changed from inside": "def it(x): ...\ndef f():\n  global it\n  it = 3",
    "attributes set": "class it:\n  def __init__(self, x): ...\nit.__init__ = lambda self, z: None",
    "a base": "import other\nclass it(other.Base):\n  pass",
    "a base with a constructor": "import other\nclass it(other.Base):\n  def __init__(self, x): ...",
    "a metaclass": "class it(metaclass=type):\n  def __init__(self, x): ...",
    "a constructor by assignment": "def f(self, z): ...\nclass it:\n  def __init__(self, x): ...\n  __init__ = f",
    "__new__": "class it:\n  def __new__(cls, z): ...\n  def __init__(self, x): ...",
    "a dataclass without constructor": "import dataclasses\n@dataclasses.dataclass(init=False)\nclass it:\n  x: int",
    "a field of its own kind": "import dataclasses as d\n@d.dataclass\nclass it:\n  z: int = d.field(init=False)",
    "names at run time": "def it(x): ...\nglobals()['it'] = lambda z: z",
    "everything from elsewhere": "from mine_too import *\ndef it(x): ...",
    "no Python": "def it(x:",
    "named by __getattr__": "def __getattr__(name): return lambda z: z",
    "no such class below": "from mine_too import Missing as it",
}


@pytest.mark.parametrize("source", _CERTAIN.values(), ids=_CERTAIN)
def test_a_misspelt_parameter_is_found(folder: Folder, source: str) -> None:
    folder.write({"mine.py": source + "\n", "mine_too.py": "def other(x, y): ...\n"})
    result = folder.lint(_HEAD + "mine.it.x = 1\nmine.it.z = 1\nmine.it.y = 1\n")
    assert [(f.code, f.location.line, f.message) for f in result.findings if f.location] == [
        ("GIN13", 12, "mine.it has no parameter z")
    ]
    assert result.not_checked == ()


@pytest.mark.parametrize("source", _UNCERTAIN.values(), ids=_UNCERTAIN)
def test_what_is_not_certain_is_not_found(folder: Folder, source: str) -> None:
    folder.write({"mine.py": source + "\n", "mine_too.py": "def other(x, y): ...\n"})
    result = folder.lint(_HEAD + "mine.it.z = 1\n")
    assert result.findings == ()
    if source != _UNCERTAIN["any keyword"]:
        assert result.not_checked == ("names and parameters of mine.it: known only once they are imported (resolve)",)


def test_a_misspelt_name_in_a_module_is_found_where_it_stands_first(folder: Folder) -> None:
    folder.write({"mine.py": "def my_model(x): ...\n"})
    found = folder.findings(_HEAD + "mine.my_modle:\n  x = 1\nMODEL = @mine.my_modl()\n")
    assert [(f.code, f.location.line, f.message) for f in found if f.location] == [
        ("GIN14", 11, "mine has no my_modle; did you mean my_model?"),
        ("GIN14", 13, "mine has no my_modl; did you mean my_model?"),
    ]


@pytest.mark.parametrize("source", ["from other import *", "my_modle = 1", "def f(): setattr(m, 'my_' + 'modle', 1)"])
def test_a_name_that_a_module_may_have_is_not_called_misspelt(folder: Folder, source: str) -> None:
    folder.write({"mine.py": f"def my_model(x): ...\n{source}\n"})
    assert folder.findings(_HEAD + "mine.my_modle.x = 1\n") == []


def test_a_module_in_a_package_is_no_missing_name(folder: Folder) -> None:
    folder.write({"mine/__init__.py": "", "mine/models.py": "def it(x): ...\n"})
    found = folder.findings(RUN + "import mine.models\nmine.models.it.z = 1\nmine.models.it.x = 1\n")
    assert [f.code for f in found] == ["GIN13"]


_CONSTANT = RUN + "import mine\nBATCH_SIZE = %SIZE\n"


@pytest.mark.parametrize(
    "files",
    [
        {"mine.py": "import gin\ngin.constant('SIZE', 3)\n"},
        {"mine.py": "import mine_too\n", "mine_too.py": "import gin\n@gin.constants_from_enum\nclass SIZE: ...\n"},
        {
            "mine/__init__.py": "from . import sizes\n",
            "mine/sizes.py": "from gin import constant\nconstant('SIZE', 3)\n",
        },
    ],
)
def test_a_macro_that_may_be_a_constant_is_not_called_undefined(folder: Folder, files: dict[str, str]) -> None:
    folder.write(files)
    result = folder.lint(_CONSTANT)
    assert result.findings == ()
    assert [text for text in result.not_checked if text.startswith("whether SIZE can be read: mine")]


def test_a_macro_is_undefined_where_no_module_knows_constants(folder: Folder) -> None:
    folder.write({"mine.py": "import os, seqio, mine_too, gone\n", "mine_too.py": "import mine\nCONSTANT = 3\n"})
    assert [f.code for f in folder.findings(_CONSTANT)] == ["GIN18"]
