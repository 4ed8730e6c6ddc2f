"""Random strings and numbers, drawn from the render's generator: seeded ones repeat themselves."""

from __future__ import annotations

import base64
import string
import uuid
from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Int

randomness: Final = Library()


def _drawn(state: State, alphabet: str, count: int) -> str:
    if count < 0:
        return ""
    state.reserve_text(count)
    state.spend(count)
    return "".join(state.random.choices(alphabet, k=count))


@randomness.add("func(int) string", "randAlphaNum", stateful=True)
def rand_alpha_num(state: State, count: int) -> str:
    return _drawn(state, string.ascii_letters + string.digits, count)


@randomness.add("func(int) string", "randAlpha", stateful=True)
def rand_alpha(state: State, count: int) -> str:
    return _drawn(state, string.ascii_letters, count)


@randomness.add("func(int) string", "randNumeric", stateful=True)
def rand_numeric(state: State, count: int) -> str:
    return _drawn(state, string.digits, count)


@randomness.add("func(int) string", "randAscii", stateful=True)
def rand_ascii(state: State, count: int) -> str:
    return _drawn(state, "".join(map(chr, range(32, 127))), count)


@randomness.add("func(int) (string, error)", "randBytes", stateful=True)
def rand_bytes(state: State, count: int) -> str:
    if count < 0:
        raise CallFailed("runtime error: makeslice: len out of range")
    state.reserve_text(count)
    return base64.b64encode(state.random.randbytes(count)).decode()


@randomness.add("func(int, int) int", "randInt", stateful=True)
def rand_int(state: State, minimum: int, maximum: int) -> Int:
    if maximum <= minimum:
        raise CallFailed("invalid argument to Intn")
    return Int(state.random.randrange(minimum, maximum))


@randomness.add("func(string) string", stateful=True)
def shuffle(state: State, text: str) -> str:
    state.spend(len(text))
    return "".join(state.random.sample(text, len(text)))


@randomness.add("func() string", stateful=True)
def uuidv4(state: State) -> str:
    return str(uuid.UUID(int=state.random.getrandbits(128), version=4))
