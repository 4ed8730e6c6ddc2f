"""fmt.Sprintf: a format string and its directives, applied to the values that templates have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from planform.gotemplate.errors import CallFailed, LimitReached
from planform.gotemplate.floats import format_float
from planform.gotemplate.printing import MAX_NESTING, NODE, Meter, show_bool
from planform.gotemplate.quoting import can_backquote, quote, quote_rune
from planform.gotemplate.values import (
    MISSING,
    NIL_CONTAINERS,
    Int,
    Record,
    Uint8,
    Uint64,
    Value,
    foreign,
    from_bytes,
    to_bytes,
    type_name,
)

MAX_WIDTH: Final = 1_000_000  # Go: a larger width or precision is a bad one


def sprintf(template: str, values: Sequence[Value], meter: Meter | None = None) -> str:
    """fmt.Sprintf."""
    meter = meter or Meter()
    pieces = _plain_directives(template)
    if pieces is None or len(pieces) >> 1 != len(values):
        return _Printf(template, values, meter).run()
    out = list(pieces)
    for at, value in enumerate(values):
        verb, kind = pieces[2 * at + 1], type(value)
        if (kind is str and verb != "d") or ((kind is int or kind is Int) and verb != "s"):
            out[2 * at + 1] = str(value)
        else:
            out[2 * at + 1] = _Verb(verb).show(value, meter)
    return "".join(out)


@lru_cache(maxsize=1024)
def _plain_directives(template: str) -> tuple[str, ...] | None:
    """Text and verbs in turn, if all that the format has is `%s`, `%d` and `%v`; most have nothing else."""
    pieces = tuple(re.split("%([sdv])", template))
    return None if len(pieces) > 64 or any("%" in text for text in pieces[::2]) else pieces


class _Printf:
    """One pass over a format string."""

    def __init__(self, template: str, values: Sequence[Value], meter: Meter) -> None:
        self.template = template
        self.values = values
        self.meter = meter
        self.at = 0
        self.argument = 0
        self.reordered = False
        self.good_index = True
        self.after_index = False

    def run(self) -> str:
        template, end = self.template, len(self.template)
        out: list[str] = []
        while self.at < end:
            percent = template.find("%", self.at)
            if percent < 0:
                out.append(template[self.at :])
                break
            out.append(template[self.at : percent])
            self.at = percent + 1
            text = self.directive()
            self.meter.spend(len(text))
            out.append(text)
        if not self.reordered and self.argument < len(self.values):
            extra = ", ".join(
                "<nil>" if value is None else f"{type_name(value)}={_Verb('v').show(value, self.meter)}"
                for value in self.values[self.argument :]
            )
            out.append(f"%!(EXTRA {extra})")
        return "".join(out)

    def directive(self) -> str:
        """What one %-directive becomes; `at` is after its percent sign."""
        template, problems = self.template, ""
        flags = _Verb("")
        self.good_index, self.after_index = True, False
        while self.at < len(template) and template[self.at] in "#0+- ":
            flags.flag(template[self.at])
            self.at += 1
        self.index()
        if self.peek() == "*":
            self.at += 1
            width = self.star()
            if width is None:
                problems += "%!(BADWIDTH)"
            else:
                flags.minus = flags.minus or width < 0
                flags.width = abs(width)
            self.after_index = False
        else:
            flags.width = self.number()
            if self.after_index and flags.width is not None:
                self.good_index = False
        if self.peek() == ".":
            self.at += 1
            if self.after_index:
                self.good_index = False
            self.index()
            if self.peek() == "*":
                self.at += 1
                precision = self.star()
                if precision is None:
                    problems += "%!(BADPREC)"
                elif precision >= 0:
                    flags.precision = precision
                else:
                    problems += "%!(BADPREC)"
                self.after_index = False
            else:
                flags.precision = self.number() or 0
        if not self.after_index:
            self.index()
        if self.at >= len(template):
            return problems + "%!(NOVERB)"
        verb = template[self.at]
        self.at += 1
        if verb == "%":
            return problems + "%"
        if not self.good_index:
            return f"{problems}%!{verb}(BADINDEX)"
        if self.argument >= len(self.values):
            return f"{problems}%!{verb}(MISSING)"
        value = self.values[self.argument]
        self.argument += 1
        flags.choose(verb)
        self.meter.spend(flags.width or 0)
        return problems + flags.show(value, self.meter)

    def peek(self) -> str:
        return self.template[self.at : self.at + 1]

    def number(self) -> int | None:
        number: int | None = None
        while self.peek().isdigit() and self.peek().isascii():
            number = (number or 0) * 10 + int(self.peek())
            self.at += 1
            if number > MAX_WIDTH and self.peek().isdigit():
                self.at = len(self.template)  # such a number makes Go give up on the rest
                return None
        return number

    def star(self) -> int | None:
        """A width or precision taken from the arguments."""
        value = self.values[self.argument] if self.argument < len(self.values) else None
        if self.argument < len(self.values):
            self.argument += 1
        if isinstance(value, int) and type(value) is not bool and abs(value) <= MAX_WIDTH:
            return int(value)
        return None

    def index(self) -> None:
        """`[n]`, which chooses the next argument."""
        if self.peek() != "[":
            return
        self.reordered = True
        close = self.template.find("]", self.at)
        if close < 0:
            self.good_index = False
            self.at += 1
            return
        digits = self.template[self.at + 1 : close]
        self.at = close + 1
        if digits.isascii() and digits.isdigit() and len(digits) < 8 and 1 <= int(digits) <= len(self.values):
            self.argument = int(digits) - 1
            self.after_index = True
        else:
            self.good_index = False
            self.after_index = True


class _Verb:
    """A verb with its flags, applied to values; containers apply it to each of their elements."""

    __slots__ = ("minus", "plus", "plus_v", "precision", "sharp", "sharp_v", "space", "verb", "width", "zero")

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.width: int | None = None
        self.precision: int | None = None
        self.minus = self.plus = self.sharp = self.space = self.zero = False
        self.sharp_v = self.plus_v = False

    def flag(self, char: str) -> None:
        match char:
            case "#":
                self.sharp = True
            case "0":
                self.zero = True
            case "+":
                self.plus = True
            case "-":
                self.minus = True
            case _:
                self.space = True

    def choose(self, verb: str) -> None:
        """Set the verb; `%#v` and `%+v` mean something else than `#` and `+` do elsewhere."""
        self.verb = verb
        if verb == "v":
            self.sharp_v, self.sharp = self.sharp, False
            self.plus_v, self.plus = self.plus, False

    # --- values -------------------------------------------------------------------------------------------------------

    def show(self, value: Value, meter: Meter, depth: int = 0) -> str:
        if self.verb == "T":
            return self.pad(self.truncate(type_name(value)))
        if self.verb == "p":
            return self.pointer(value)
        if value is None or value is MISSING:
            if depth:
                return "interface {}(nil)" if self.sharp_v else "<nil>"
            return self.pad("<nil>") if self.verb == "v" else self.bad(value, meter)
        if depth > MAX_NESTING:
            raise LimitReached(f"value is nested more than {MAX_NESTING} deep")
        text = self.scalar(value) if not isinstance(value, (list, dict)) else self.nested(value, meter, depth)
        if text is None:
            return self.bad(value, meter)
        meter.spend(len(text) + NODE)
        return text

    def bad(self, value: Value, meter: Meter) -> str:
        """`%!d(string=hi)`"""
        if value is None or value is MISSING:
            return f"%!{self.verb}(<nil>)"
        plain = _Verb("v")
        plain.width, plain.precision = self.width, self.precision
        plain.minus, plain.zero = self.minus, self.zero
        plain.plus, plain.sharp, plain.space = self.plus, self.sharp, self.space
        plain.sharp_v, plain.plus_v = self.sharp_v, self.plus_v
        return f"%!{self.verb}({type_name(value)}={plain.show(value, meter)})"

    def pointer(self, value: Value) -> str:
        if isinstance(value, (list, dict, bytes)):
            raise CallFailed("printf: %p prints an address, which is refused")
        return f"%!p({type_name(value)}={_Verb('v').show(value, Meter())})" if value is not None else "%!p(<nil>)"

    def nested(self, value: list[Any] | dict[str, Any], meter: Meter, depth: int) -> str:
        if isinstance(value, dict):
            if self.sharp_v and isinstance(value, NIL_CONTAINERS):
                return f"{type_name(value)}(nil)"
            pairs = (f"{self.show(key, meter, 1)}:{self.show(value[key], meter, depth + 1)}" for key in sorted(value))
            return self.enclose(value, "map[", ", " if self.sharp_v else " ", pairs)
        if self.sharp_v and isinstance(value, NIL_CONTAINERS):
            return f"{type_name(value)}(nil)"
        items = (self.show(item, meter, depth + 1) for item in value)
        return self.enclose(value, "[", ", " if self.sharp_v else " ", items)

    def enclose(self, value: Value, opening: str, separator: str, parts: Any) -> str:
        if self.sharp_v:
            return f"{type_name(value)}{{{separator.join(parts)}}}"
        return f"{opening}{separator.join(parts)}]"

    def scalar(self, value: Value) -> str | None:
        """None if the verb does not suit the value."""
        if isinstance(value, str):
            return self.string(value)
        if type(value) is bool:
            return self.pad(show_bool(value)) if self.verb in "tv" else None
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, float):
            return self.floating(value)
        if isinstance(value, complex):
            return self.complex(value)
        if isinstance(value, bytes):
            return self.binary(value)
        if isinstance(value, Record):
            return self.string(value.go_string()) if not self.sharp_v else value.go_string()
        return self.pad(f"<{foreign(value)}>")

    # --- by type ------------------------------------------------------------------------------------------------------

    def string(self, text: str) -> str | None:
        match self.verb:
            case "v":
                return self.quoted(text) if self.sharp_v else self.pad(self.truncate(text))
            case "s":
                return self.pad(self.truncate(text))
            case "q":
                return self.quoted(text)
            case "x" | "X":
                return self.hexadecimal(to_bytes(text))
        return None

    def quoted(self, text: str) -> str:
        text = self.truncate(text)
        if self.sharp and can_backquote(text):
            return self.pad(f"`{text}`")
        return self.pad(quote(text, ascii_only=self.plus))

    def truncate(self, text: str) -> str:
        return text if self.precision is None else text[: self.precision]

    def hexadecimal(self, data: bytes) -> str:
        if self.precision is not None:
            data = data[: self.precision]
        if not data:
            return self.pad("")
        digits = "%02X" if self.verb == "X" else "%02x"
        prefix = f"0{self.verb}" if self.sharp else ""
        separator = " " + prefix if self.space else ""
        return self.pad(prefix + separator.join(digits % byte for byte in data))

    def binary(self, data: bytes) -> str | None:
        match self.verb:
            case "v" | "d":
                if self.sharp_v:
                    return f"[]byte{{{', '.join(f'0x{byte:x}' for byte in data)}}}"
                return f"[{' '.join(filter(None, map(self.integer, data)))}]"
            case "s" | "q" | "x" | "X":
                return self.string(from_bytes(data))
        return None

    def integer(self, number: int) -> str | None:
        match self.verb:
            case "v":
                if self.sharp_v and isinstance(number, (Uint8, Uint64)):
                    return self.digits(number, 16, "x", prefixed=True)
                return self.digits(number, 10, "d")
            case "d":
                return self.digits(number, 10, "d")
            case "b":
                return self.digits(number, 2, "b")
            case "o" | "O":
                return self.digits(number, 8, "o")
            case "x" | "X":
                return self.digits(number, 16, self.verb)
            case "c":
                return self.pad(_character(number))
            case "q":
                return self.pad(quote_rune(number, ascii_only=self.plus))
            case "U":
                return self.unicode(number)
        return None

    def digits(self, number: int, base: int, form: str, *, prefixed: bool = False) -> str:
        negative, minimum = number < 0, 0
        if self.precision is not None:
            minimum = self.precision
            if minimum == 0 and number == 0:
                return " " * (self.width or 0)
        elif self.zero and not self.minus and self.width is not None:
            minimum = self.width - (negative or self.plus or self.space)
        text = format(abs(int(number)), form).rjust(minimum, "0")
        if self.sharp or prefixed:
            if base == 2:
                text = "0b" + text
            elif base == 8:
                text = text if text.startswith("0") else "0" + text
            elif base == 16:
                text = f"0{form}{text}"
        if self.verb == "O":
            text = "0o" + text
        return self.pad(self.sign(negative) + text, zero=False)

    def sign(self, negative: bool) -> str:
        return "-" if negative else "+" if self.plus else " " if self.space else ""

    def unicode(self, number: int) -> str:
        text = f"U+{number & 0xFFFFFFFFFFFFFFFF:0{max(self.precision or 0, 4)}X}"
        if self.sharp and 0 <= number <= 0x10FFFF:
            text += f" '{chr(number)}'"
        return self.pad(text, zero=False)

    def floating(self, number: float) -> str | None:
        if self.verb == "v":
            return self.number(number, "g", self.precision)
        if self.verb in "bgGxX":
            return self.number(number, self.verb, self.precision)
        if self.verb in "eEfF":
            return self.number(
                number, "f" if self.verb == "F" else self.verb, 6 if self.precision is None else self.precision
            )
        return None

    def complex(self, value: complex) -> str | None:
        if self.verb not in "vbgGxXfFeE":
            return None
        signed = _Verb(self.verb)
        signed.precision, signed.plus = self.precision, True
        return f"({self.floating(value.real)}{signed.floating(value.imag)}i)"

    def number(self, number: float, verb: str, precision: int | None) -> str:
        text = format_float(number, verb, precision)
        if text[0] not in "+-":
            text = "+" + text
        if self.space and text[0] == "+" and not self.plus:
            text = " " + text[1:]
        if text[1] in "IN":
            if text[1] == "N" and not self.space and not self.plus:
                text = text[1:]
            return self.pad(
                text if self.plus or text[0] != "+" else text[1:] if text[1:] == "NaN" else text, zero=False
            )
        if self.sharp and verb != "b":
            text = _with_point(text, verb, precision)
        if self.plus or text[0] != "+":
            if self.zero and not self.minus and self.width is not None and self.width > len(text):
                return text[0] + "0" * (self.width - len(text)) + text[1:]
            return self.pad(text)
        return self.pad(text[1:])

    def pad(self, text: str, *, zero: bool | None = None) -> str:
        if self.width is None or len(text) >= self.width:
            return text
        if self.minus:
            return text.ljust(self.width)
        filler = "0" if (self.zero if zero is None else zero) else " "
        return text.rjust(self.width, filler)


def _character(number: int) -> str:
    valid = 0 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    return chr(number) if valid else "\ufffd"


def _with_point(text: str, verb: str, precision: int | None) -> str:
    """The `#` flag: always a decimal point, and for %g the trailing zeros."""
    digits = 0
    if verb in "gGxX":
        digits = 6 if precision is None else precision
    marks = "pP" if verb in "xX" else "eEpP"
    cut = next((i for i, char in enumerate(text) if i and char in marks), len(text))
    body, tail = text[1:cut], text[cut:]
    significant = body.replace(".", "").lstrip("0")
    digits -= len(significant)
    if "." not in body:
        if body == "0":
            digits -= 1
        body += "."
    return text[0] + body + "0" * max(digits, 0) + tail
