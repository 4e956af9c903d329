"""A stand-in that is another object in all but what a test says: handed in where that other one would be."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Steered:
    """It does what the real one does, apart from what stands in `instead`."""

    def __init__(self, real: Any, **instead: Any) -> None:
        self.__dict__["real"] = real
        self.__dict__["instead"] = instead

    def __getattr__(self, name: str) -> Any:
        instead = self.__dict__["instead"]
        return instead[name] if name in instead else getattr(self.__dict__["real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["real"], name, value)

    @contextmanager
    def doing(self, **instead: Any) -> Iterator[None]:
        """Otherwise for a while."""
        before = dict(self.__dict__["instead"])
        self.__dict__["instead"].update(instead)
        try:
            yield
        finally:
            self.__dict__["instead"] = before


def steered(real: T, **instead: Any) -> T:
    """The same, for those who are strict about types; `doing` is then found by `steering`."""
    found: Any = Steered(real, **instead)
    return cast("T", found)


def steering(stand_in: object) -> Steered:
    """What `steered` made, as what it is."""
    assert isinstance(stand_in, Steered)
    return stand_in
