"""Floating-point numbers as Go's strconv.FormatFloat writes them."""

from __future__ import annotations

import math


def format_float(number: float, verb: str, precision: int | None) -> str:
    """FormatFloat for the verbs e E f F g G b x X; None asks for as many digits as it takes."""
    if number != number:
        return "NaN"
    if number in (math.inf, -math.inf):
        return "+Inf" if number > 0 else "-Inf"
    match verb:
        case "e" | "E":
            text = _exponent_form(number, precision)
        case "f" | "F":
            text = _plain_form(number, precision)
        case "g" | "G":
            text = _general_form(number, precision)
        case "b":
            text = _binary_form(number)
        case _:
            text = _hexadecimal_form(number, precision)
    return text.upper() if verb in "EGX" else text


def decompose(number: float) -> tuple[str, str, int]:
    """Sign, shortest digits, and the exponent of the first of them."""
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        return sign, "0", 0
    mantissa, _, power = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    exponent = len(whole) - leading - 1 + int(power or 0)
    return sign, digits.rstrip("0") or "0", exponent


def scientific(digits: str, exponent: int) -> str:
    point = "." if len(digits) > 1 else ""
    return f"{digits[0]}{point}{digits[1:]}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def positional(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _exponent_form(number: float, precision: int | None) -> str:
    if precision is not None:
        return f"{number:.{precision}e}"
    sign, digits, exponent = decompose(number)
    return sign + scientific(digits, exponent)


def _plain_form(number: float, precision: int | None) -> str:
    if precision is not None:
        return f"{number:.{precision}f}"
    sign, digits, exponent = decompose(number)
    return sign + positional(digits, exponent)


def _general_form(number: float, precision: int | None) -> str:
    if precision is None:
        sign, digits, exponent = decompose(number)
        threshold = 6
    else:
        sign = "-" if math.copysign(1, number) < 0 else ""
        mantissa, _, power = f"{abs(number):.{max(precision, 1) - 1}e}".partition("e")
        digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(power)
        threshold = max(precision, 1)
        if threshold > len(digits) >= exponent + 1:
            threshold = len(digits)
        if number == 0:
            exponent = 0
    if exponent < -4 or exponent >= threshold:
        return sign + scientific(digits, exponent)
    return sign + positional(digits, exponent)


def _binary_form(number: float) -> str:
    mantissa, exponent = math.frexp(number)
    scaled = int(math.ldexp(mantissa, 53))
    if number == 0:
        return ("-" if math.copysign(1, number) < 0 else "") + "0p-1074"
    shift = exponent - 53
    while shift < -1074:
        scaled >>= 1
        shift += 1
    return f"{scaled}p{shift:+d}"


def _hexadecimal_form(number: float, precision: int | None) -> str:
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        digits = "" if not precision else "." + "0" * precision
        return f"{sign}0x0{digits}p+00"
    mantissa, exponent = math.frexp(abs(number))
    bits, exponent = int(math.ldexp(mantissa, 53)), exponent - 1  # 1.xxx with 52 bits after the point
    if precision is None:
        fraction = f"{bits & ((1 << 52) - 1):013x}".rstrip("0")
    else:
        extra = 52 - 4 * precision
        if extra > 0:
            half, rest = 1 << (extra - 1), bits & ((1 << extra) - 1)
            bits >>= extra
            bits += rest > half or (rest == half and bits & 1)
            if bits >> (4 * precision + 1):
                bits, exponent = bits >> 1, exponent + 1
            fraction = f"{bits & ((1 << (4 * precision)) - 1):0{precision}x}" if precision else ""
        else:
            fraction = f"{bits & ((1 << 52) - 1):013x}".ljust(precision, "0")
    point = "." if fraction else ""
    return f"{sign}0x1{point}{fraction}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
