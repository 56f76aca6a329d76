"""Computes an attribute when it is first read, and keeps it on the object.

It is `functools.cached_property` for objects of one thread: that of Python before 3.12 takes a lock
at each first read, and a task reads its prompt once.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", covariant=True)


class ReadOnce(Generic[Value]):
    """Decorates a method whose result is kept in the object's `__dict__`, which precedes this."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type) -> Value:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
