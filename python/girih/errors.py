"""The exceptions that Girih raises.

Every exception derives from :class:`GirihError` and from the built-in exception that a user would
catch for the same mistake in NumPy or plain Python. The extension raises these classes; this module
imports nothing, so that the extension can raise them at any time.
"""

from __future__ import annotations

__all__ = [
    "AxisError",
    "CopyRequiredError",
    "DTypeError",
    "DeviceError",
    "EvaluationCancelledError",
    "EvaluationError",
    "EvaluationTimeoutError",
    "FormatError",
    "GirihError",
    "IndexOutOfBoundsError",
    "InvalidArgumentError",
    "LinAlgError",
    "MissingNameError",
    "OutOfMemoryError",
    "ShapeError",
    "TracedValueError",
]


class GirihError(Exception):
    """Base of all exceptions that Girih raises on purpose."""


class ShapeError(GirihError, ValueError):
    """Shapes do not fit together, or an op does not support a shape.

    The error is raised at the line that records the op; the message names the op and the shapes.
    """


class AxisError(GirihError, ValueError, IndexError):
    """An axis outside ``-ndim..ndim``, or one named twice. Like NumPy's ``AxisError``."""


class DTypeError(GirihError, TypeError, ValueError):
    """An unknown dtype, a dtype that an op does not support, or an object that is no tensor.

    It is both a ``TypeError`` and a ``ValueError``, because NumPy raises the one for some of these
    mistakes and the other for others: ``numpy.iinfo(float)`` and lists of unequal lengths are a
    ``ValueError`` there.
    """


class IndexOutOfBoundsError(GirihError, IndexError, ValueError):
    """An element index outside its axis, or an index that does not fit the shape.

    It is both an ``IndexError`` and a ``ValueError``, because NumPy raises the one for ``x[index]``
    and the other for ``numpy.unravel_index`` and ``numpy.choose``.
    """


class FormatError(GirihError, ValueError):
    """A file or text of a graph or of tensors is malformed.

    The message says where reading stopped, and names the found and the expected input.
    """


class InvalidArgumentError(GirihError, ValueError):
    """An argument has an invalid value, such as a scalar that does not fit its dtype."""


class MissingNameError(InvalidArgumentError, KeyError):
    """A container has no entry of this name."""

    # The text of a KeyError is the repr of its argument.
    __str__ = Exception.__str__


class CopyRequiredError(InvalidArgumentError, BufferError):
    """``copy=False`` was given, but the data must be copied."""


class OutOfMemoryError(GirihError, MemoryError):
    """There is not enough memory for the values of a program. Its tensors stay lazy and usable."""


class EvaluationError(GirihError, RuntimeError):
    """Evaluation failed. The tensors stay lazy and can be evaluated again."""


class EvaluationTimeoutError(EvaluationError, TimeoutError):
    """A run took longer than its executor's ``timeout_seconds``, and was stopped."""


class EvaluationCancelledError(EvaluationError):
    """A run was stopped by ``Executor.cancel_all``. Its tensors stay lazy and usable."""


class LinAlgError(EvaluationError, ValueError):
    """A matrix is singular or not positive definite, or an iteration does not converge. Like
    NumPy's ``LinAlgError``.
    """


class TracedValueError(GirihError, TypeError):
    """Code read the value of a placeholder of a function transform.

    Inside ``grad`` and other transforms the arguments have no values yet, so Python cannot branch
    on them or convert them; use ``where`` instead.
    """


class CheckError(GirihError, AssertionError):
    """A condition of ``debug.check`` is false."""


class DeviceError(GirihError, RuntimeError):
    """A device does not exist or has failed, or operands are on several devices."""
