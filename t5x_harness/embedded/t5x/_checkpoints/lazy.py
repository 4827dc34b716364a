"""Arrays that are read when they are asked for."""

from __future__ import annotations

import abc
import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from t5x._shown_as import shown_as


@shown_as("t5x.checkpoint_importer")
class LazyArray(abc.ABC):
    """Stands for an array whose shape and dtype are known and whose data is not here yet.

    Args:
        shape: shape of the array.
        dtype: dtype that it is delivered in.
        get_fn: returns the data.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, get_fn: Callable[[], Any]):
        self._shape = tuple(shape)
        self._dtype = jnp.dtype(dtype)
        self._get_fn = get_fn

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._shape

    @property
    def dtype(self) -> Any:
        """The dtype that the array is delivered in."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array once it is here."""
        return math.prod(self._shape) * self._dtype.itemsize

    def astype(self, dtype: Any) -> LazyArray:
        """Returns the same array, to be delivered in another dtype."""
        return type(self)(self._shape, dtype, self._get_fn)

    @abc.abstractmethod
    def get(self) -> Any:
        """Reads the array."""

    @abc.abstractmethod
    async def get_async(self) -> Any:
        """Reads the array without holding up the event loop."""

    def _delivered(self, array: Any) -> Any:
        return array if array.dtype == self._dtype else array.astype(self._dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


@shown_as("t5x.checkpoint_importer")
class LazyThreadPoolArray(LazyArray):
    """A lazy array whose ``get_fn`` blocks; ``get_async`` runs it in a thread."""

    def get(self) -> Any:
        """Reads the array."""
        return self._delivered(self._get_fn())

    async def get_async(self) -> Any:
        """Reads the array in a thread."""
        return await asyncio.to_thread(self.get)


@shown_as("t5x.checkpoint_importer")
class LazyAwaitableArray(LazyArray):
    """A lazy array whose ``get_fn`` returns an awaitable."""

    _get_fn: Callable[[], Awaitable[np.ndarray]]

    def get(self) -> Any:
        """Reads the array; not possible inside a running event loop."""
        return asyncio.run(self.get_async())

    async def get_async(self) -> Any:
        """Reads the array."""
        return self._delivered(await self._get_fn())
