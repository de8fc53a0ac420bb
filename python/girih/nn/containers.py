"""Modules that hold other modules, or parameters, in order or by name."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .._girih import Tensor, has_protocol
from ..checks import items
from ..errors import DTypeError, IndexOutOfBoundsError, InvalidArgumentError, MissingNameError
from .module import Module, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
    from collections.abc import Mapping as AnyMapping

    from typing_extensions import Self

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

T = TypeVar("T")


class _Holder(Module, Generic[T]):
    """Named values, stored as attributes, so that trees have them under these names."""

    _keys: list[str]

    def __init__(self) -> None:
        self._keys = []

    def _check(self, key: str, value: Any) -> Any:
        """The value in the form in which it is stored."""
        raise NotImplementedError

    def _hold(self, key: str, value: Any) -> None:
        kind = type(self).__name__
        if not isinstance(key, str) or not key or "." in key:
            raise InvalidArgumentError(
                f"{kind}: names are strings that are not empty and have no dots, got {key!r}"
            )
        if key not in self._keys:
            if hasattr(self, key):
                raise InvalidArgumentError(
                    f"{kind}: {key!r} is the name of an attribute of every {kind}; take another"
                )
            setattr(self, key, self._check(key, value))
            self._keys.append(key)
        else:
            setattr(self, key, self._check(key, value))

    def _drop(self, key: str) -> None:
        delattr(self, key)
        self._keys.remove(key)

    def _all(self) -> dict[str, T]:
        return {key: getattr(self, key) for key in self._keys}

    def __len__(self) -> int:
        return len(self._keys)

    def extra_repr(self) -> str:
        """Empty, because ``repr`` shows the held values by name."""
        return ""


class _Ordered(_Holder[T]):
    """Values by position: the names are ``"0"``, ``"1"`` and so on."""

    def _refill(self, items: list[tuple[str, Any]]) -> None:
        """Replaces the held values. Names that are positions follow the new order; other names are
        kept."""
        for key in list(self._keys):
            self._drop(key)
        for i, (key, value) in enumerate(items):
            self._hold(str(i) if key.isdecimal() else key, value)

    def _key(self, index: int) -> str:
        size = len(self._keys)
        try:
            index = operator.index(index)
        except TypeError:
            raise DTypeError(
                f"{type(self).__name__}: an index is an int or a slice, got a "
                f"{type(index).__name__}"
            ) from None
        if not -size <= index < size:
            raise IndexOutOfBoundsError(
                f"{type(self).__name__}: index {index} is out of range for {size} entries"
            )
        return self._keys[index]

    def append(self, value: Any) -> Self:
        """Appends a value.

        Returns:
            This module.
        """
        self._hold(str(len(self._keys)), value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Appends several values.

        Returns:
            This module.
        """
        for value in items(values):
            self.append(value)
        return self

    def insert(self, index: int, value: Any) -> None:
        """Inserts a value before a position, like ``list.insert``."""
        items: list[tuple[str, Any]] = list(self._all().items())
        items.insert(index, ("0", value))
        self._refill(items)

    def pop(self, index: int = -1) -> T:
        """Removes a value and returns it."""
        value = getattr(self, self._key(index))
        del self[index]
        result: T = value
        return result

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])  # type: ignore[call-arg]
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        self._hold(self._key(index), value)

    def __delitem__(self, index: int | slice) -> None:
        items = list(self._all().items())
        if not isinstance(index, slice):
            self._key(index)
        del items[index]
        self._refill(items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all().values())

    def __contains__(self, value: object) -> bool:
        return any(held is value for held in self)


class _Named(_Holder[T]):
    """Values by name."""

    def _pairs(self, values: Any) -> list[Any]:
        """The pairs of name and value of a mapping, or of a sequence of pairs."""
        if values is None:
            return []
        pairs = items(values.items() if has_protocol(values, "items") else values)
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InvalidArgumentError(
                    f"{type(self).__name__}: expected a dict, or pairs of name and value, got a "
                    f"{type(pair).__name__}"
                )
        return pairs

    def _missing(self, key: object) -> MissingNameError:
        return MissingNameError(
            f"{type(self).__name__}: there is no entry {key!r}; there are "
            f"{', '.join(map(repr, self._keys)) or 'none'}"
        )

    def __getitem__(self, key: str) -> T:
        if key not in self._keys:
            raise self._missing(key)
        value: T = getattr(self, key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._hold(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise self._missing(key)
        self._drop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> KeysView[str]:
        """The names, in insertion order."""
        return self._all().keys()

    def values(self) -> ValuesView[T]:
        """The held values."""
        return self._all().values()

    def items(self) -> ItemsView[str, T]:
        """Pairs of name and value."""
        return self._all().items()


class _OfModules(_Holder[Any]):
    """A container whose modules are called by its owner, in scopes with both names."""

    def _check(self, key: str, value: Any) -> Any:
        if not isinstance(value, Module):
            raise InvalidArgumentError(
                f"{type(self).__name__}: entry {key!r} is of type {type(value).__name__}, not a "
                "module"
            )
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # The key is only a part of the scope's name: see name_scope.
        if isinstance(value, Module):
            object.__setattr__(self, name, value)
            if (own := self.__dict__.get("_scope_name")) is not None:
                value.name_scope(f"{own}.{name}")
        else:
            super().__setattr__(name, value)

    def name_scope(self, name: str) -> None:
        """Also names the scopes of the modules, because nothing calls the container itself."""
        super().name_scope(name)
        for key, value in self._all().items():
            value.name_scope(f"{name}.{key}")


class ModuleList(_OfModules, _Ordered[Module]):
    """A list of modules, whose parameters belong to the module that holds the list.

    A plain list of modules works as well; this class exists for users of PyTorch, and has the same
    names in ``state_dict``.

    Example:
        >>> import girih as gr
        >>> layers = gr.nn.ModuleList([gr.nn.Linear(4, 4) for _ in range(3)])
        >>> len(layers), sorted(layers.state_dict())[:2]
        (3, ['0.bias', '0.weight'])
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)


class ModuleDict(_OfModules, _Named[Module]):
    """Modules by name, in the order given; see :class:`ModuleList`.

    Example:
        >>> import girih as gr
        >>> heads = gr.nn.ModuleDict({"a": gr.nn.Linear(2, 1), "b": gr.nn.Identity()})
        >>> list(heads.keys())
        ['a', 'b']
    """

    def __init__(self, modules: AnyMapping[str, Module] | None = None) -> None:
        super().__init__()
        for key, value in self._pairs(modules):
            self[key] = value


class _OfParameters(_Holder[Any]):
    def _check(self, key: str, value: Any) -> Any:
        return Parameter(value)

    def extra_repr(self) -> str:
        """The parameters' shapes."""
        return ", ".join(f"{k}: {t.dtype.name}{list(t.shape)}" for k, t in self._all().items())


class ParameterList(_OfParameters, _Ordered[Tensor]):
    """A list of parameters: every value assigned or appended is trained.

    Example:
        >>> import girih as gr
        >>> class Polynomial(gr.nn.Module):
        ...     def __init__(self, degree):
        ...         self.factors = gr.nn.ParameterList(gr.ones([]) for _ in range(degree + 1))
        ...     def forward(self, x):
        ...         return sum(f * x**i for i, f in enumerate(self.factors))
        >>> model = Polynomial(2)
        >>> model(gr.asarray(2.0)).item(), [name for name, _ in model.named_parameters()]
        (7.0, ['factors.0', 'factors.1', 'factors.2'])
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)


class ParameterDict(_OfParameters, _Named[Tensor]):
    """Parameters by name: every value assigned is trained.

    Example:
        >>> import girih as gr
        >>> weights = gr.nn.ParameterDict({"left": gr.ones([2]), "right": gr.zeros([3])})
        >>> [name for name, _ in weights.named_parameters()]
        ['left', 'right']
    """

    def __init__(self, values: AnyMapping[str, Any] | None = None) -> None:
        super().__init__()
        for key, value in self._pairs(values):
            self[key] = value


class Sequential(_Ordered[Any]):
    """Calls modules, or any functions of one argument, one after the other.

    Args:
        layers: The modules or functions, or one mapping from names to them. The default names are
            ``"0"``, ``"1"`` and so on; named layers are attributes too.

    Raises:
        InvalidArgumentError: A layer cannot be called.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Sequential({"first": gr.nn.Linear(3, 2), "act": gr.nn.ReLU()})
        >>> model(gr.ones([4, 3])).shape, model.first is model[0]
        ((4, 2), True)
        >>> gr.nn.Sequential(gr.nn.Linear(3, 2), gr.tanh)[:1]
        Sequential(
          0: Linear(in_features=3, out_features=2, bias=True)
        )
    """

    def __init__(
        self, *layers: Module | Callable[[Any], Any] | AnyMapping[str, Any] | Iterable[Any]
    ) -> None:
        super().__init__()
        only: Any = layers[0] if len(layers) == 1 else None
        if has_protocol(only, "items") and not isinstance(only, Module):
            for key, value in only.items():
                self._hold(key, value)
        elif isinstance(only, (list, tuple)):
            self.extend(only)
        else:
            self.extend(layers)

    def _check(self, key: str, value: Any) -> Any:
        if not callable(value):
            raise InvalidArgumentError(
                f"Sequential: layer {key!r} is of type {type(value).__name__}, which cannot be "
                "called"
            )
        return value

    @overload
    def __getitem__(self, index: int | str) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | str | slice) -> Any:
        if isinstance(index, slice):
            part = Sequential()
            part._refill(list(self._all().items())[index])
            return part
        if isinstance(index, str):
            if index not in self._keys:
                raise MissingNameError(
                    f"Sequential: there is no layer {index!r}; there are {', '.join(self._keys)}"
                )
            return getattr(self, index)
        return super().__getitem__(index)

    def forward(self, x: Any) -> Any:
        """Applies the layers in order."""
        for layer in self:
            x = layer(x)
        return x

    def __repr__(self) -> str:
        lines = [f"{key}: {_shown(value)}" for key, value in self._all().items()]
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__qualname__}(\n  {body}\n)" if lines else "Sequential()"


def _shown(layer: Any) -> str:
    """The text of a layer; for a function, its name."""
    if isinstance(layer, Module):
        return repr(layer)
    return getattr(layer, "__qualname__", None) or repr(layer)
