"""Secrets at rest: sealed on disk, opened on load, and a clear word when a key is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.apiserver.auth.encryption import Encryption, EncryptionKeyMissing, Key, SealBroken, add_key, load_keys
from planform.clock import VirtualClock
from planform.errors import UsageError
from planform.store import Entry, open_store
from planform.store import Key as StoreKey

OLD, NEW = Key("old", b"o" * 32), Key("new", b"n" * 32)
SECRET = StoreKey("secrets", "default", "s")
PLAIN = StoreKey("configmaps", "default", "c")
VALUE = b'{"data":{"password":"aHVudGVyMg=="}}'


@settings(deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(["secrets", "widgets.example.org"]))
def test_decode_undoes_encode_and_only_chosen_resources_are_sealed(content: bytes, resource: str) -> None:
    codec, value = Encryption([NEW, OLD]), b"{" + content
    sealed = codec.encode(resource, value)
    assert codec.decode(resource, sealed) == value
    assert (sealed == value) is (resource != "secrets")


def test_the_same_value_is_sealed_differently_each_time() -> None:
    codec = Encryption([NEW])
    assert len({codec.encode("secrets", VALUE) for _ in range(100)}) == 100


def test_the_first_key_seals_and_all_keys_open() -> None:
    old = Encryption([OLD]).encode("secrets", VALUE)
    both = Encryption([NEW, OLD])
    assert both.decode("secrets", old) == VALUE
    assert Encryption([NEW]).decode("secrets", both.encode("secrets", VALUE)) == VALUE


def test_values_from_before_pass() -> None:
    assert Encryption([NEW]).decode("secrets", VALUE) == VALUE


def test_a_missing_key_is_named() -> None:
    with pytest.raises(EncryptionKeyMissing, match='secrets is encrypted with key "old"') as failure:
        Encryption([NEW]).decode("secrets", Encryption([OLD]).encode("secrets", VALUE))
    assert failure.value.hint is not None


def test_another_key_of_the_same_name_does_not_open_it() -> None:
    with pytest.raises(SealBroken, match='key "old"'):
        Encryption([Key("old", b"x" * 32)]).decode("secrets", Encryption([OLD]).encode("secrets", VALUE))


def test_a_sealed_secret_cannot_be_passed_off_as_something_else() -> None:
    sealed = Encryption([NEW]).encode("secrets", VALUE)
    with pytest.raises(SealBroken):
        Encryption([NEW]).decode("configmaps", sealed)


def test_no_byte_of_a_sealed_value_can_be_changed_or_cut_off() -> None:
    codec = Encryption([NEW])
    sealed = codec.encode("secrets", VALUE)
    prefix = len(b"planform:aes-256-gcm:")
    for position in range(prefix, len(sealed)):
        changed = sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]
        with pytest.raises((SealBroken, EncryptionKeyMissing)):
            codec.decode("secrets", changed)
    for length in range(prefix, len(sealed)):
        with pytest.raises((SealBroken, EncryptionKeyMissing)):
            codec.decode("secrets", sealed[:length])


async def test_a_store_keeps_secrets_off_the_disk_and_reads_what_was_plain(tmp_path: Path) -> None:
    async with await open_store(tmp_path, clock=VirtualClock()) as store:
        await store.stage(SECRET._replace(name="early"), b'{"early":1}')
    keys = tmp_path / "keys"
    add_key(keys)
    async with await open_store(tmp_path, clock=VirtualClock(), codec=Encryption(load_keys(keys))) as store:
        assert store.get(SECRET._replace(name="early")) == Entry(1, b'{"early":1}')
        await store.stage(SECRET, VALUE)
        await store.stage(PLAIN, b'{"shown":"in-the-clear"}')
        assert [change.value for change in await store.recall(1, 1)] == [VALUE]
    on_disk = b"".join(path.read_bytes() for path in _files(tmp_path) if path != keys)
    assert b"aHVudGVyMg" not in on_disk
    assert b"in-the-clear" in on_disk
    add_key(keys)
    async with await open_store(tmp_path, clock=VirtualClock(), codec=Encryption(load_keys(keys))) as store:
        assert store.get(SECRET) == Entry(2, VALUE)
    with pytest.raises(EncryptionKeyMissing):
        await open_store(tmp_path, clock=VirtualClock(), codec=Encryption([NEW]))


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file()]


def test_a_key_file_is_private_and_grows_from_the_front(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first, second = add_key(path), add_key(path)
    assert load_keys(path) == [second, first]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        load_keys(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# nothing\n",
        "id\n",
        "id c2hvcnQ=\n",
        "id !!!\n",
        "bad/id " + "A" * 43 + "=\n",
        ("id " + "A" * 43 + "=\n") * 2,
    ],
)
def test_a_damaged_key_file_is_refused_without_showing_a_key(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, content.encode())
    os.close(descriptor)
    with pytest.raises(UsageError) as refusal:
        load_keys(path)
    assert "AAAA" not in str(refusal.value)


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent"):
        load_keys(tmp_path / "absent")
    with pytest.raises(UsageError, match="needs a key"):
        Encryption([])
