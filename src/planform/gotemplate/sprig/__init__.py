"""sprig's text functions, a module for each subject.

`sprig` is the whole library by name. `REFUSED` are the functions of the original that templates do not get, and why:
a template must not read the host that renders it, nor use cryptography that cannot be made in bounded time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planform.gotemplate.functions import Function
from planform.gotemplate.sprig.casing import casing
from planform.gotemplate.sprig.crypto import crypto
from planform.gotemplate.sprig.dates import dates
from planform.gotemplate.sprig.dicts import dicts
from planform.gotemplate.sprig.encoding import encoding
from planform.gotemplate.sprig.equality import equality
from planform.gotemplate.sprig.lists import lists
from planform.gotemplate.sprig.logic import logic
from planform.gotemplate.sprig.numbers import numbers
from planform.gotemplate.sprig.paths import paths
from planform.gotemplate.sprig.randomness import randomness
from planform.gotemplate.sprig.regexes import regexes
from planform.gotemplate.sprig.semver import versions
from planform.gotemplate.sprig.strings import strings
from planform.gotemplate.sprig.urls import urls

sprig: Final[Mapping[str, Function]] = {
    **strings,
    **casing,
    **lists,
    **dicts,
    **numbers,
    **logic,
    **equality,
    **encoding,
    **dates,
    **regexes,
    **versions,
    **paths,
    **urls,
    **randomness,
    **crypto,
}

_HOST: Final = "it would tell the template about the machine that renders it"
_KEYS: Final = (
    "keys and certificates made while rendering differ on every render; let a provider or a function make them"
)
_SLOW: Final = "it is slow on purpose and salted, so no two renders agree; hash passwords where they are stored"

REFUSED: Final[Mapping[str, str]] = {
    "env": _HOST,
    "expandenv": _HOST,
    "getHostByName": "it would ask the network",
    "bcrypt": _SLOW,
    "htpasswd": _SLOW,
    "genPrivateKey": _KEYS,
    "genCA": _KEYS,
    "genCAWithKey": _KEYS,
    "genSelfSignedCert": _KEYS,
    "genSelfSignedCertWithKey": _KEYS,
    "genSignedCert": _KEYS,
    "genSignedCertWithKey": _KEYS,
    "buildCustomCert": _KEYS,
}
