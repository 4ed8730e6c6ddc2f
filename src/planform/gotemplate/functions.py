"""What a template function is: a callable and the Go signature by which its arguments are checked.

    strings = Library()

    @strings.add("func(int, string) string")
    def trunc(length: int, text: str) -> str: ...

The compiler reads the signature, so a function is called with values of the Go types that it declares and never has to
look at them again. `interface {}` is any value, with None for nil. A function that needs the render in progress (to
charge for its work, for time or randomness) asks for it with `stateful=True` and gets it first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

ANY = "interface {}"
VALUE = "reflect.Value"  # Go's built-ins take these; the same to us, save for what nil does to them
_NULLABLE = ("interface", "map[", "[]", "*", VALUE)

Call = TypeVar("Call", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Signature:
    """The Go types of a function's parameters; a variadic one's last is that of each further argument."""

    parameters: tuple[str, ...]
    variadic: bool
    result: str

    def parameter(self, index: int) -> str:
        return self.parameters[min(index, len(self.parameters) - 1)]

    def arity_error(self, name: str, written: int, given: int) -> str | None:
        """Why this number of arguments is wrong. `written` are those in the text, `given` adds the piped one."""
        if self.variadic:
            minimum = len(self.parameters) - 1
            return (
                f"wrong number of args for {name}: want at least {minimum} got {written}" if given < minimum else None
            )
        if given != len(self.parameters):
            return f"wrong number of args for {name}: want {len(self.parameters)} got {given}"
        return None


@dataclass(frozen=True, slots=True)
class Function:
    """A template function. Those that the compiler treats otherwise say so: an operator, or `call`."""

    call: Callable[..., Any]
    go: str = "func(...interface {}) interface {}"
    stateful: bool = False
    special: str = ""

    @property
    def signature(self) -> Signature:
        return parse_signature(self.go)


class Library(Mapping[str, Function]):
    """Functions by the names that templates use."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}

    def add(self, go: str, *names: str, stateful: bool = False, special: str = "") -> Callable[[Call], Call]:
        """Add the decorated function under `names`, or its own name."""

        def register(call: Call) -> Call:
            for name in names or (call.__name__,):
                self._functions[name] = Function(call, go, stateful, special)
            return call

        return register

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


def can_be_nil(go_type: str) -> bool:
    return go_type.startswith(_NULLABLE)


@lru_cache(maxsize=1024)
def parse_signature(go: str) -> Signature:
    """Read `func(int, ...interface {}) (string, error)`."""
    match = re.fullmatch(r"func\((.*?)\) (?:\((.+), error\)|(.+))", go)
    if match is None:
        raise ValueError(f"not a Go function signature: {go}")
    parameters = tuple(part for part in match[1].split(", ") if part)
    variadic = bool(parameters) and parameters[-1].startswith("...")
    if variadic:
        parameters = (*parameters[:-1], parameters[-1].removeprefix("..."))
    return Signature(parameters, variadic, match[2] or match[3])
