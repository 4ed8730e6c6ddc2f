"""String formats, as Kubernetes judges them."""

from __future__ import annotations

import pytest

from planform.apimachinery.formats import FORMATS, format_check

CASES: dict[str, tuple[list[str], list[str]]] = {
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9", "24-01-01", ""]),
    "date-time": (
        ["2024-01-01T00:00:00Z", "2024-01-01t00:00:00z", "2024-01-01T00:00:00.123456+02:00"],
        ["2024-01-01T00:00:00", "2024-01-01T24:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:60Z", ""],
    ),
    "duration": (
        ["1h", "1.5h", "-1s", "3 days", "1d", "1 w", "0", "1h 30m", "3ms", "1 hour", "2hours", "1us", "1µs"],
        ["abc", "1", ""],
    ),
    "email": (
        ["a@b.c", "Bob <a@b.c>", "a@b", '"q u"@x.y', "a@[1.2.3.4]"],
        ["a", "a@", "@b", "a b@c.d", "a..b@c.d", "a@b..c"],
    ),
    "hostname": (
        ["example.com", "a", "ünï.com"],
        ["-a.com", "a_b.com", "1.2.3.4", "a.1", "ex ample", "", "a." * 130, "a.b-", "x" * 64],
    ),
    "ipv4": (["1.2.3.4", "01.2.3.4"], ["1.2.3", "256.1.1.1", "::1", ""]),
    "ipv6": (["::1", "::ffff:1.2.3.4", "2001:DB8::1"], ["1.2.3.4", "fe80::1%eth0", "g::"]),
    "cidr": (["10.0.0.0/8", "10.0.0.1/8", "::/0", "1.2.3.4/08"], ["10.0.0.0/33", "10.0.0.0", "a/8"]),
    "mac": (
        [
            "01:23:45:67:89:ab",
            "01-23-45-67-89-AB",
            "0123.4567.89ab",
            "01:23:45:67:89:ab:cd:ef",
            "02:00:5e:10:00:00:00:01:02:00:5e:10:00:00:00:01:02:00:5e:10",
            "0200.5e10.0000.0001",
        ],
        ["01:23:45:67:89", "01:23-45:67:89:ab"],
    ),
    "uuid": (
        [
            "123e4567-e89b-12d3-a456-426614174000",
            "123e4567e89b12d3a456426614174000",
            "123E4567-E89B-12D3-A456-426614174000",
        ],
        ["123"],
    ),
    "uuid3": (["123e4567-e89b-32d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    "uuid4": (["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-42d3-c456-426614174000"]),
    "uuid5": (["123e4567-e89b-52d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    "isbn": (["0321751043", "978-0321751041", "0-321-75104-3"], ["123"]),
    "isbn10": (["0321751043", "080442957X"], ["0321751044"]),
    "isbn13": (["978-0321751041"], ["9780321751042"]),
    "creditcard": (["4111111111111111", "4111-1111-1111-1111", "5555555555554444"], ["4111111111111112", "x"]),
    "ssn": (["111-11-1111", "111 11 1111"], ["11111111", "111111111"]),
    "hexcolor": (["#fff", "fff", "#FFFFFF"], ["#ff", "red"]),
    "rgbcolor": (["rgb(255,255,255)", "rgb( 1 , 2 , 3 )", "rgb(0,0,0)"], ["rgb(256,0,0)", "rgb(01,2,3)"]),
    "byte": (["aGk=", "aGVsbG8="], ["aGk", "a", "", "!!!!"]),
    "password": (["x", ""], []),
    "uri": (
        ["https://a.b", "/a", "http://", "mailto:x@y", "//x", "urn:isbn:1"],
        ["a", "", "http://a b", "http://[::1", "http://a/%zz"],
    ),
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["507f1f77bcf86cd79943901", "507f1f77bcf86cd79943901z"]),
    "k8s-short-name": (["a", "a-b"], ["A", "-a", "a" * 64, ""]),
    "k8s-long-name": (["a.b", "a." + "b" * 64], ["a..b", "A.b", "a" * 254, ""]),
}
"""Each format with texts that are of it and texts that are not."""


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (good, _) in CASES.items() for text in good])
def test_a_text_of_the_format_is_accepted(name: str, text: str) -> None:
    check = format_check(name)
    assert check is not None
    assert check(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (_, bad) in CASES.items() for text in bad])
def test_another_text_is_refused(name: str, text: str) -> None:
    check = format_check(name)
    assert check is not None
    assert not check(text)


def test_every_format_has_cases() -> None:
    assert {name.replace("-", "") for name in CASES} == set(FORMATS)


def test_a_format_that_kubernetes_does_not_know_is_ignored() -> None:
    assert format_check("colour") is None
