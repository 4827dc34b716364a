"""Facts that the source of modules shows for certain are found without imports, in several threads at once."""

import ast
import gc
import sys
import threading
from pathlib import Path

import pytest
from linting import RUN, T5X, Folder

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.python_source import ModuleSource
from t5x_harness.gin.reading import snapshot_of
from t5x_harness.gin.sources import parse_module
from t5x_harness.lint.rule import Context
from t5x_harness.lint.rules.missing_module import fix_of
from t5x_harness.spec import Location, Severity

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

# Symbols that may also take z, or whose parameters are not certain.
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
    folder.write({"mine.py": source + "\n", "mine_too.py": "def other(x, y): ...\n", "other.py": ""})
    folder.write({"flax/__init__.py": "", "flax/linen.py": ""})  # a module that is found wherever this test runs
    result = folder.lint(_HEAD + "mine.it.x = 1\nmine.it.z = 1\nmine.it.y = 1\n")
    assert [(f.code, f.location.line, f.message) for f in result.findings if f.location] == [
        ("GIN13", 12, "mine.it has no parameter z")
    ]
    assert result.not_checked == ()


@pytest.mark.parametrize("source", _UNCERTAIN.values(), ids=_UNCERTAIN)
def test_what_is_not_certain_is_not_found(folder: Folder, source: str) -> None:
    folder.write({"mine.py": source + "\n", "mine_too.py": "def other(x, y): ...\n", "other.py": ""})
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
    folder.write({"mine.py": f"def my_model(x): ...\n{source}\n", "other.py": ""})
    assert folder.findings(_HEAD + "mine.my_modle.x = 1\n") == []


def test_a_module_that_nothing_imports_is_out_of_reach(folder: Folder) -> None:
    folder.write({"my/__init__.py": "", "my/models.py": "def it(x): ...\n", "my/other.py": ""})
    found = [f for f in folder.findings(f"{RUN}import my\nmy.models.it.x = 3\n") if f.severity is Severity.ERROR]
    assert [(f.code, f.message, f.fix) for f in found] == [
        (
            "GIN14",
            "my.models.it cannot be reached: `import my` does not import the module my.models, and nothing else does",
            "add `import my.models` to run.gin",
        )
    ]
    folder.only(f"{RUN}import my\nimport my.other\nmy.models.it.x = 3\n", "GIN14")


@pytest.mark.parametrize(
    ("files", "imports"),
    [
        ({}, "import my.models\n"),
        ({}, "import my\nfrom my import models\n"),
        ({"my/__init__.py": "from my import models\n"}, "import my\n"),
        ({"my/__init__.py": "from .models import it\n"}, "import my\n"),
        ({"tasks.py": "import my.models\n"}, "import my\nimport tasks\n"),
        ({"my/__init__.py": "import importlib\nimportlib.import_module('my.models')\n"}, "import my\n"),
        ({"my/__init__.py": "import a_package_that_is_not_here\n"}, "import my\n"),
    ],
)
def test_a_module_that_something_may_import_is_within_reach(
    folder: Folder, files: dict[str, str], imports: str
) -> None:
    folder.write({"my/__init__.py": "", "my/models.py": "def it(x): ...\n", **files})
    assert [f for f in folder.findings(f"{RUN}{imports}my.models.it.x = 3\n") if f.code == "GIN14"] == []


@pytest.mark.parametrize("arguments", ["denylist=['y']", "allowlist=('x',)", "'name', blacklist=['y', 'z']"])
def test_a_parameter_that_a_decorator_keeps_from_gin(folder: Folder, arguments: str) -> None:
    folder.write({"mine.py": f"import gin\n@gin.configurable({arguments})\ndef it(x, y): ...\n"})
    finding = folder.only(f"{_HEAD}mine.it.x = 1\nmine.it.y = 1\n", "GIN13")
    assert finding.message == "mine.it's decorator keeps the parameter y from Gin"
    assert finding.location == Location("run.gin", 12)


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
    folder.write({"mine.py": "import os, seqio, mine_too\n", "mine_too.py": "import mine\nCONSTANT = 3\n"})
    assert [f.code for f in folder.findings(_CONSTANT)] == ["GIN18"]


MODULE = "import utils\n"


def test_an_import_in_a_module_of_the_users_is_found_at_its_line(folder: Folder) -> None:
    folder.write(
        {
            "mine/__init__.py": "",
            "mine/tasks.py": "import os\nimport seqio\nfrom . import metrics\nfrom mine import metrics as m\n",
            "mine/metrics.py": "import json\n\nimport rouge_scorer_fast\nfrom .txet import clean\n",
            "mine/text.py": "",
        }
    )
    found = [f for f in folder.findings(RUN.replace(MODULE, MODULE + "import mine.tasks\n")) if f.code == "GIN15"]
    assert [(f.location, f.message) for f in found] == [
        (
            Location("mine/metrics.py", 3),
            "mine/metrics.py imports rouge_scorer_fast, which is not there (run.gin:4 brings mine.metrics)",
        ),
        (
            Location("mine/metrics.py", 4),
            "mine/metrics.py imports mine.txet, which is not there (run.gin:4 brings mine.metrics)",
        ),
    ]
    assert found[1].fix == "did you mean mine.text?"
    assert {f.severity for f in found} == {Severity.WARNING}  # resolve imports them, and reports an error


def test_a_package_that_many_modules_lack_is_said_once(folder: Folder) -> None:
    folder.write({"one.py": "import two\nimport gone.a\nfrom gone import b\n", "two.py": "import gone\n"})
    found = folder.findings(RUN.replace(MODULE, MODULE + "import one\nimport two\n"))
    assert [(f.code, f.location) for f in found] == [("GIN15", Location("one.py", 2))]


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import gone\nexcept ImportError:\n    gone = None\n",
        "import typing\nif typing.TYPE_CHECKING:\n    import gone\n",
        "def late():\n    import gone\n",
        "import sys\nsys.path.append('/opt/ours')\nimport gone\n",
        pytest.param("import tensorflow.compat.v9\nimport distutils.gone\n", marks=pytest.mark.stack),
        "import odd.parts\n",
    ],
)  # fmt: skip
def test_imports_that_may_well_succeed_are_left_alone(folder: Folder, source: str) -> None:
    folder.write({"tasks.py": source, "odd/__init__.py": "__path__.append('/opt/odd')\n"})
    assert folder.findings(RUN.replace(MODULE, MODULE + "import tasks\n")) == []


def test_a_package_that_changes_its_path_is_open(folder: Folder) -> None:
    folder.write({"odd/__init__.py": "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"})
    result = folder.lint(RUN.replace(MODULE, MODULE + "import odd.tasks\n"))
    assert result.findings == ()
    assert "whether odd.tasks can be imported: odd changes where Python looks for modules" in result.not_checked
    folder.write({"first.py": "import sys\nsys.path.insert(0, '/opt')\n"})
    result = folder.lint(RUN.replace(MODULE, MODULE + "import first\nimport second\n"))
    assert result.findings == ()
    assert "whether second can be imported: first changes where Python looks for modules" in result.not_checked


def test_the_module_of_the_tasks_is_looked_up_too(folder: Folder) -> None:
    folder.write({"mine/__init__.py": "", "mine/tasks.py": ""})
    finding = folder.only(RUN + "MIXTURE_OR_TASK_MODULE = 'mine.taks'\n", "GIN15")
    assert finding.message == "MIXTURE_OR_TASK_MODULE = 'mine.taks': there is no module mine.taks"
    assert (finding.location, finding.fix) == (Location("run.gin", 10), "did you mean mine.tasks?")
    assert finding.severity is Severity.ERROR
    absent = folder.only(RUN + "MIXTURE_OR_TASK_MODULE = 'not_here.tasks'\n", "GIN15")
    assert absent.severity is Severity.WARNING  # the job's image may have it
    assert folder.findings(RUN + "MIXTURE_OR_TASK_MODULE = 'mine.tasks'\n") == []


def test_a_package_in_a_folder_of_its_own_is_named(folder: Folder) -> None:
    folder.write({"src/mytasks/__init__.py": "", "src/mytasks/tasks.py": "", "lib/other/one.py": ""})
    gin = RUN.replace(MODULE, MODULE + "import mytasks.tasks\n")
    assert folder.only(gin, "GIN15").fix == (
        'src/mytasks is there: set python_path = ["src"] in [tool.t5x_harness] of pyproject.toml, or PYTHONPATH=src, '
        "and the same in the image of the job"
    )
    assert folder.findings(gin, python_path=("src",)) == []


@pytest.mark.stack
def test_a_missing_part_of_the_stack_is_installed_with_its_extra(folder: Folder) -> None:
    (fix,) = {f.fix for f in folder.findings(RUN.replace(MODULE, MODULE + "import fiddle.gone_a\n"))}
    assert fix == "fiddle is there, but has no fiddle.gone_a: check the spelling and the version"
    finder = ModuleFinder([folder.path], T5X)
    program = folder.read(RUN)
    context = Context(program, snapshot_of(program))
    for package in ("seqio", "optax", "tensorflow_text"):
        assert fix_of(context, finder, package, package) == (
            "install what T5X runs with: python -m pip install 't5x-harness[t5x]'"
        )


def test_a_program_that_old_guides_name(folder: Folder) -> None:
    finding = folder.only(RUN.replace(MODULE, MODULE + "from t5x import train_unfragmented\n"), "GIN15")
    assert finding.fix == "T5X has no such program: t5x.train is the one that trains"


FUNCTION = "def function_{n}(a, b=(1, [2, {{'c': {n}}}])):\n    return a + b[{n}] * (a - {n})\n"
SOURCE = "".join(FUNCTION.format(n=n) for n in range(300))


def test_threads_parse_the_same_tree() -> None:
    wanted, found = ast.dump(ast.parse(SOURCE)), []

    def parse() -> None:
        found.extend(ast.dump(parse_module(SOURCE)) == wanted for _ in range(8))

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(5)  # collections are when threads are switched
    gc.callbacks.append(lambda phase, info: None)
    try:
        threads = [threading.Thread(target=parse) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert found == [True] * 32


def test_what_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        parse_module("def")


def test_imports_for_type_checkers_load_nothing() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import heavy\nelse:\n    import light\n"
    source = ModuleSource("mine", text, parse_module(text), is_package=False)
    assert source.imported_modules == ("typing", "typing.TYPE_CHECKING", "light")


def test_a_checkout_on_the_path_does_not_hide_the_harness(tmp_path: Path) -> None:
    """A config may import the harness's sample tasks in any folder in which it is run."""
    # The source tree maps top-level folders into the package, so its t5x_harness/ alone lacks sample_tasks.
    (tmp_path / "t5x_harness").mkdir()
    (tmp_path / "t5x_harness" / "__init__.py").touch()
    found = ModuleFinder([tmp_path], None).find("t5x_harness.sample_tasks.tasks")
    assert found is not None
    assert found.origin is not None
    assert found.origin.name == "tasks.py"
