"""TensorFlow, SeqIO and the modules that import them, each imported on first use.

They take four fifths of the time to import T5X, and partitioning or defining a model needs none of them.
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import clu.data as clu_data
    import seqio
    import tensorflow as tf
    from clu import metric_writers
    from tensorflow.io import gfile
else:

    class _Lazy(types.ModuleType):
        """Stands for a module. Attributes that tests set on it are seen by every module that imports it from here."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self.__name__), name)

        def __dir__(self) -> list[str]:
            return dir(importlib.import_module(self.__name__))

    clu_data = _Lazy("clu.data")
    gfile = _Lazy("tensorflow.io.gfile")
    metric_writers = _Lazy("clu.metric_writers")
    seqio = _Lazy("seqio")
    tf = _Lazy("tensorflow")


class SeqIOClass:
    """A class of SeqIO, imported when it is called, compared, or read as an attribute of another class.

    Functions use it as a default, so that defining them does not import SeqIO; it looks like the class.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @property
    def __wrapped__(self) -> Any:
        return getattr(seqio, self.__name__)

    def __get__(self, instance: object, owner: type) -> Any:
        return self.__wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


EVALUATOR = SeqIOClass("Evaluator")
JSON_ENCODER = SeqIOClass("TensorAndNumpyEncoder")
