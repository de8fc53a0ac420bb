"""The exceptions Girih raises.

Every one derives from :class:`GirihError` and from the built-in exception that a user would catch
for the same mistake in NumPy or plain Python. The extension raises these classes; this module
imports nothing, so that it can do so at any time.
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
    "OutOfMemoryError",
    "ShapeError",
    "TracedValueError",
]


class GirihError(Exception):
    """Base of all exceptions that Girih raises on purpose."""


class ShapeError(GirihError, ValueError):
    """Shapes that do not fit together, or a shape an op cannot take.

    Raised at the line that records the op; the message carries the op and the shapes.
    """


class AxisError(GirihError, ValueError, IndexError):
    """An axis outside ``-ndim..ndim``, or one named twice. Like NumPy's ``AxisError``."""


class DTypeError(GirihError, TypeError):
    """An unknown dtype, or one that an op does not take."""


class IndexOutOfBoundsError(GirihError, IndexError):
    """An element index outside its axis."""


class FormatError(GirihError, ValueError):
    """A file or a text that is not what it should be: a graph, or tensors in some format.

    The message says where reading stopped, what was found there and what was expected.
    """


class InvalidArgumentError(GirihError, ValueError):
    """An argument whose value makes no sense, such as a scalar that does not fit its dtype."""


class CopyRequiredError(InvalidArgumentError, BufferError):
    """``copy=False`` was asked for, and the data cannot be had without a copy."""


class OutOfMemoryError(GirihError, MemoryError):
    """Not enough memory for a program's values. Its tensors stay lazy and usable."""


class EvaluationError(GirihError, RuntimeError):
    """Evaluation failed. The tensors asked for stay lazy and can be evaluated again."""


class EvaluationTimeoutError(EvaluationError, TimeoutError):
    """A run took longer than its executor's ``timeout_seconds``, and was stopped."""


class EvaluationCancelledError(EvaluationError):
    """A run was stopped by ``Executor.cancel_all``. Its tensors stay lazy and usable."""


class LinAlgError(EvaluationError, ValueError):
    """A matrix that linear algebra cannot take: singular, not positive definite, or one whose
    iteration does not converge. Like NumPy's ``LinAlgError``.
    """


class TracedValueError(GirihError, TypeError):
    """A placeholder of a function transform was asked for its value.

    Inside ``grad`` and its like the arguments have no values yet, so Python cannot branch on
    them or convert them; use ``where`` instead.
    """


class CheckError(GirihError, AssertionError):
    """A condition that ``debug.check`` was given does not hold."""


class DeviceError(GirihError, RuntimeError):
    """A device that is not there or has failed, or operands on several devices."""
