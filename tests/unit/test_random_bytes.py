"""Randomness taken from a pool."""

from __future__ import annotations

import os

import pytest

from planform.apiserver.random_bytes import PooledSystemRandom


def test_bytes_of_the_pool_come_in_order_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = iter([bytes(range(256)) * 16, bytes([7]) * 4096])
    monkeypatch.setattr(os, "urandom", lambda size: next(pools)[:size])
    rng = PooledSystemRandom()
    taken = [rng.getrandbits(128) for _ in range(257)]
    assert taken[0] == int.from_bytes(bytes(range(16)))
    assert taken[1] == int.from_bytes(bytes(range(16, 32)))
    assert taken[256] == int.from_bytes(bytes([7]) * 16)


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 9, 53, 128, 100_000])
def test_as_many_bits_as_were_asked_for(bits: int) -> None:
    rng = PooledSystemRandom()
    values = [rng.getrandbits(bits) for _ in range(40)]
    assert all(0 <= value < 1 << bits for value in values)
    assert bits < 7 or max(values).bit_length() > bits - 7


def test_a_negative_number_of_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        PooledSystemRandom().getrandbits(-1)
