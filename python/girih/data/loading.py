"""Batches of tensors from arrays, sequences and iterables."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import _girih, lazy, tree
from .._girih import Tensor, has_protocol
from ..checks import check_constructor, explain_public, items
from ..errors import DTypeError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["DataLoader", "batched", "collate", "prefetched", "shuffled"]

_T = TypeVar("_T")
#: The end marker that the thread of :func:`prefetched` sends after the last item.
_END = object()


def collate(samples: list[Any]) -> Any:
    """Combines samples into a batch: stacks tensors and arrays of equal shape, converts numbers to
    a tensor.

    Args:
        samples: Pytrees of the same structure: tensors, arrays, numbers; strings stay in a list.

    Returns:
        A pytree of tensors whose first axis is the samples.

    Raises:
        InvalidArgumentError: There are no samples, or the samples differ in structure.
        ShapeError: The samples differ in shape.

    Example:
        >>> import girih as gr
        >>> batch = gr.data.collate([{"x": [1.0, 2.0], "y": 3}, {"x": [4.0, 5.0], "y": 6}])
        >>> batch["x"][0].tolist(), batch["y"].tolist()
        ([1.0, 4.0], [3, 6])
    """
    samples = items(samples)
    if not samples:
        raise InvalidArgumentError("collate: there are no samples")
    first, treedef = tree.flatten(samples[0])
    columns = [[leaf] for leaf in first]
    for i, sample in enumerate(samples[1:], 1):
        leaves = tree.leaves_like(treedef, sample)
        if leaves is None:
            raise InvalidArgumentError(
                f"collate: sample 0 is {treedef}, sample {i} {tree.structure(sample)}"
            )
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    return tree.unflatten(treedef, [_column(column) for column in columns])


def _column(values: list[Any]) -> Any:
    if isinstance(values[0], (str, bytes)):
        return values
    if isinstance(values[0], (bool, int, float, complex)):
        return _girih.asarray(values)
    tensors = [_girih.asarray(value) for value in values]
    for i, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise ShapeError(
                f"collate: sample 0 has shape {list(tensors[0].shape)}, sample {i} "
                f"{list(tensor.shape)}; pad them, or give a collate function"
            )
    return _girih.stack(tensors, 0)


def batched(
    samples: Iterable[Any],
    batch_size: int,
    drop_last: bool = False,
    collate: Callable[[list[Any]], Any] = collate,
) -> Iterator[Any]:
    """The batches of an iterable of samples.

    Args:
        samples: The samples.
        batch_size: The number of samples in a batch.
        drop_last: Whether to drop a last batch with fewer samples.
        collate: Combines a list of samples into a batch; :func:`collate` by default.

    Yields:
        The batches.

    Returns:
        An iterator of batches.

    Raises:
        InvalidArgumentError: The batch size is below 1.

    Example:
        >>> import girih as gr
        >>> [batch.tolist() for batch in gr.data.batched(range(5), 2)]
        [[0, 1], [2, 3], [4]]
    """
    if batch_size < 1:
        raise InvalidArgumentError(f"batched: batch_size must be at least 1, got {batch_size}")
    return _batches(samples, batch_size, drop_last, collate)


def _batches(
    samples: Iterable[Any], size: int, drop_last: bool, make: Callable[[list[Any]], Any]
) -> Iterator[Any]:
    batch: list[Any] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield make(batch)
            batch = []
    if batch and not drop_last:
        yield make(batch)


def shuffled(samples: Iterable[_T], buffer_size: int, seed: int = 0) -> Iterator[_T]:
    """The samples of an iterable, shuffled with a buffer of limited size.

    Args:
        samples: The samples.
        buffer_size: The number of samples from which the next one is drawn; if it is at least the
            number of all samples, each order is equally likely.
        seed: The seed of the order.

    Returns:
        An iterator of the samples.

    Raises:
        InvalidArgumentError: The buffer size is below 1.

    Example:
        >>> import girih as gr
        >>> sorted(gr.data.shuffled(range(5), 3))
        [0, 1, 2, 3, 4]
    """
    if buffer_size < 1:
        raise InvalidArgumentError(f"shuffled: buffer_size must be at least 1, got {buffer_size}")
    return _drawn(samples, buffer_size, seed)


def _drawn(samples: Iterable[_T], size: int, seed: int) -> Iterator[_T]:
    chance = random.Random(seed)
    buffer: list[_T] = []
    for sample in samples:
        if len(buffer) < size:
            buffer.append(sample)
            continue
        at = chance.randrange(size)
        yield buffer[at]
        buffer[at] = sample
    chance.shuffle(buffer)
    yield from buffer


@check_constructor
class prefetched(Generic[_T]):  # noqa: N801 - reads as a function where it is used
    """The items of an iterable, prefetched by a thread.

    The thread evaluates the tensors in the items. An error in the thread is raised in place of its
    item. The thread ends with the last item, or when the iterator is closed or deleted.

    Args:
        items: The iterable; each iteration restarts it.
        size: The maximum number of prefetched items.

    Raises:
        InvalidArgumentError: The size is below 1.

    Example:
        >>> import girih as gr
        >>> list(gr.data.prefetched(range(3)))
        [0, 1, 2]
    """

    def __init__(self, items: Iterable[_T], size: int = 2) -> None:
        if size < 1:
            raise InvalidArgumentError(f"prefetched: size must be at least 1, got {size}")
        self._items, self._size = items, size

    def __iter__(self) -> Iterator[_T]:
        waiting: queue.Queue[Any] = queue.Queue(self._size)
        stop = threading.Event()
        thread = threading.Thread(
            target=_fill, args=(self._items, waiting, stop), name="girih-prefetch", daemon=True
        )
        thread.start()
        try:
            while True:
                item, error = waiting.get()
                if error is not None:
                    raise error
                if item is _END:
                    return
                yield item
        finally:
            stop.set()
            # The thread may be waiting for room in the queue.
            while thread.is_alive():
                try:
                    waiting.get_nowait()
                except queue.Empty:
                    thread.join(0.01)


def _fill(items: Iterable[Any], waiting: queue.Queue[Any], stop: threading.Event) -> None:
    try:
        for item in items:
            if stop.is_set():
                return
            tensors = [leaf for leaf in tree.leaves(item) if isinstance(leaf, Tensor)]
            lazy.eval(*tensors)
            waiting.put((item, None))
        waiting.put((_END, None))
    except BaseException as error:
        waiting.put((None, error))


@check_constructor
class DataLoader:
    """Batches of data, optionally in a new order in each epoch.

    The data are a pytree of arrays with equal first axes, such as ``(images, labels)``, which are
    sliced batch by batch; or an object with ``len`` and ``[i]``, or an iterable, whose samples
    ``collate`` combines. Each iteration is an epoch. The order depends only on the seed and the
    number of the epoch, so that resumed training sees the same batches.

    Args:
        data: The data.
        batch_size: The number of samples in a batch.
        shuffle: Whether each epoch has a random order; not for iterables, see :func:`shuffled`.
        drop_last: Whether to drop a last batch with fewer samples.
        seed: The seed of the orders.
        collate: Combines a list of samples into a batch, if the data are not arrays.
        prefetch: The number of batches that a thread prefetches; 0 for no thread.

    Attributes:
        epoch: The number of the epoch of the next iteration, from 0.

    Raises:
        InvalidArgumentError: The batch size is below 1, ``prefetch`` is negative, an array has no
            axes, or ``shuffle`` is used with an iterable.
        ShapeError: The first axes of the arrays differ in size.

    Example:
        >>> import girih as gr
        >>> x, y = gr.arange(10), gr.arange(10) % 2
        >>> loader = gr.data.DataLoader((x, y), batch_size=4, shuffle=True)
        >>> [a.shape for a, b in loader], len(loader)
        ([(4,), (4,), (2,)], 3)
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] = collate,
        prefetch: int = 0,
    ) -> None:
        if batch_size < 1:
            raise InvalidArgumentError(
                f"DataLoader: batch_size must be at least 1, got {batch_size}"
            )
        if prefetch < 0:
            raise InvalidArgumentError(f"DataLoader: prefetch must not be negative, got {prefetch}")
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.seed, self.prefetch, self.epoch = seed, prefetch, 0
        self._collate, self._batch, self._skip = collate, 0, 0
        self._arrays = _arrays(data)
        self._data = data
        if self._arrays is not None:
            self._length: int | None = _rows(self._arrays)
        else:
            indexed = has_protocol(data, "__len__") and has_protocol(data, "__getitem__")
            self._length = len(data) if indexed else None
        if self._length is None and not has_protocol(data, "__iter__"):
            raise InvalidArgumentError(
                f"DataLoader: data are arrays, a sequence or an iterable, got {type(data).__name__}"
            )
        if self._length is None and shuffle:
            raise InvalidArgumentError(
                "DataLoader: an iterable has no random order; use girih.data.shuffled"
            )

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("DataLoader: the number of batches of an iterable is not known")
        rest = self.batch_size - 1
        return (self._length + (0 if self.drop_last else rest)) // self.batch_size

    def order(self, epoch: int) -> list[int]:
        """The order of the samples in an epoch.

        Args:
            epoch: The number of the epoch, from 0.

        Returns:
            The positions of the samples.

        Raises:
            InvalidArgumentError: The data are an iterable, which has no positions.
        """
        if self._length is None:
            raise InvalidArgumentError("DataLoader.order: samples of an iterable have no positions")
        positions = list(range(self._length))
        if self.shuffle:
            random.Random(f"{self.seed}/{epoch}").shuffle(positions)
        return positions

    def state_dict(self) -> dict[str, int]:
        """The position: the epoch, and the number of its batches that have been returned."""
        return {"epoch": self.epoch, "batch": self._batch}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Restores a :meth:`state_dict`, or one loaded from a file: continues with the next batch.

        Args:
            values: Numbers, or scalar tensors.

        Raises:
            InvalidArgumentError: A number is missing or negative.

        Example:
            >>> import girih as gr
            >>> loader = gr.data.DataLoader(gr.arange(6), batch_size=2)
            >>> first = next(iter(loader))
            >>> again = gr.data.DataLoader(gr.arange(6), batch_size=2)
            >>> again.load_state_dict(loader.state_dict())
            >>> [batch.tolist() for batch in again]
            [[2, 3], [4, 5]]
        """
        if not isinstance(values, Mapping):
            raise DTypeError(
                f"DataLoader.load_state_dict: expected a dict, got a {type(values).__name__}"
            )
        found = {}
        for name in ("epoch", "batch"):
            if name not in values or int(values[name]) < 0:
                raise InvalidArgumentError(
                    f"DataLoader.load_state_dict: {name!r} is {values.get(name)!r}; expected a "
                    "number that is not negative"
                )
            found[name] = int(values[name])
        self.epoch = found["epoch"]
        self._batch = self._skip = found["batch"]

    def __iter__(self) -> Iterator[Any]:
        made = self._made(self.epoch, self._skip)
        self._batch, self._skip = self._skip, 0
        for batch in prefetched(made, self.prefetch) if self.prefetch else made:
            # While the loop processes a batch, the state is the state after this batch.
            self._batch += 1
            yield batch
        self.epoch, self._batch = self.epoch + 1, 0

    def _made(self, epoch: int, skip: int) -> Iterator[Any]:
        """The batches of an epoch, except the first ones."""
        if self._length is None:
            for i, batch in enumerate(
                _batches(self._data, self.batch_size, self.drop_last, self._collate)
            ):
                if i >= skip:
                    yield batch
            return
        order, size = self.order(epoch), self.batch_size
        for i in range(skip, len(self)):
            chosen = order[i * size : (i + 1) * size]
            if self._arrays is None:
                yield self._collate([self._data[at] for at in chosen])
            else:
                yield self._cut(chosen, i * size)

    def _cut(self, chosen: list[int], start: int) -> Any:
        leaves, treedef = self._arrays  # type: ignore[misc]
        if self.shuffle:
            rows = _girih.asarray(chosen)
            return tree.unflatten(treedef, [_girih.take(leaf, rows, axis=0) for leaf in leaves])
        end = start + len(chosen)
        return tree.unflatten(treedef, [leaf[start:end] for leaf in leaves])


def _is_array(value: Any) -> bool:
    foreign = has_protocol(value, "__dlpack__") or has_protocol(value, "__array_interface__")
    return isinstance(value, Tensor) or foreign


def _arrays(data: Any) -> tuple[list[Tensor], tree.TreeDef] | None:
    """The leaves as tensors, evaluated, if all of them are arrays."""
    if not _is_array(data) and not isinstance(data, (tuple, dict)):
        return None
    leaves, treedef = tree.flatten(data)
    if not leaves or not all(map(_is_array, leaves)):
        return None
    tensors = [_girih.asarray(leaf) for leaf in leaves]
    lazy.eval(tensors)
    return tensors, treedef


def _rows(arrays: tuple[list[Tensor], tree.TreeDef]) -> int:
    leaves = arrays[0]
    for leaf in leaves:
        if leaf.ndim == 0:
            raise InvalidArgumentError("DataLoader: an array without axes has no samples")
        if leaf.shape[0] != leaves[0].shape[0]:
            raise ShapeError(
                f"DataLoader: arrays have {leaves[0].shape[0]} and {leaf.shape[0]} samples along "
                "their first axes"
            )
    return int(leaves[0].shape[0])


explain_public(globals())
