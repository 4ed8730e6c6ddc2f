"""Who we are to registries: logins from the files that `docker login` and `podman login` write, and from pull secrets.

Programs that would hand out credentials (credHelpers, credsStore) are not run: on a server nobody would see their
windows or trust their environment. A registry that has only such an entry is refused with a hint.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from planform.api.metadata import name_of
from planform.packages.errors import CredentialsUnusable
from planform.packages.references import Reference

DOCKER_CONFIG_JSON: Final = ".dockerconfigjson"
DOCKER_CFG: Final = ".dockercfg"


@dataclass(frozen=True, slots=True)
class Login:
    """A name and a password, or a token that stands for them. Never shown."""

    username: str = ""
    password: str = ""
    identity_token: str = ""
    registry_token: str = ""

    def __repr__(self) -> str:
        return f"Login({self.username!r}, ...)"

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


class Credentials:
    """Logins by registry or path; of several that match, the longest path counts, then the first source."""

    def __init__(self, logins: Mapping[str, Login] = {}, helpers: Mapping[str, str] = {}) -> None:  # read only
        self._logins = dict(logins)
        self._helpers = dict(helpers)

    def login_for(self, reference: Reference) -> Login | None:
        """The login for a package; None means that we ask as nobody. Raises CredentialsUnusable."""
        for place in _places(reference):
            if (found := self._logins.get(place)) is not None:
                return found
            if helper := self._helpers.get(place):
                raise _helper_refused(reference.registry, helper)
        if helper := self._helpers.get("*"):
            raise _helper_refused(reference.registry, helper)
        return None

    def then(self, other: Credentials) -> Credentials:
        """These, and the other's where these have none."""
        return Credentials({**other._logins, **self._logins}, {**other._helpers, **self._helpers})


def credentials_of(config: Any, *, where: str) -> Credentials:
    """What a parsed docker `config.json` says; raises CredentialsUnusable for one that makes no sense."""
    if not isinstance(config, dict):
        raise CredentialsUnusable(f"{where} is not an object")
    auths = config.get("auths") or {}
    helpers = config.get("credHelpers") or {}
    if not isinstance(auths, dict) or not isinstance(helpers, dict):
        raise CredentialsUnusable(f"{where}: auths and credHelpers must be objects")
    store = config.get("credsStore")
    logins, through = {}, {_place(key): str(name) for key, name in helpers.items()}
    for key, entry in auths.items():
        login = _login(entry, f"{where}: {key}")
        if login is not None:
            logins[_place(str(key))] = login
        elif store:
            through.setdefault(_place(str(key)), str(store))  # docker leaves an empty entry for what a store keeps
    return Credentials(logins, through)


def credentials_from_secret(secret: Mapping[str, Any]) -> Credentials:
    """What a pull secret says, in either form that Kubernetes knows."""
    name = name_of(secret)
    data = secret.get("data") or {}
    for key in (DOCKER_CONFIG_JSON, DOCKER_CFG):
        if key in data:
            try:
                config = orjson.loads(base64.b64decode(data[key], validate=True))
            except (ValueError, TypeError) as error:
                raise CredentialsUnusable(f"{key} of Secret {name} is not base64 of JSON") from error
            return credentials_of(config if key == DOCKER_CONFIG_JSON else {"auths": config}, where=f"Secret {name}")
    raise CredentialsUnusable(
        f"Secret {name} has neither {DOCKER_CONFIG_JSON} nor {DOCKER_CFG}",
        hint="kubectl create secret docker-registry makes one that can be used",
    )


def credentials_from_files(paths: Sequence[Path]) -> Credentials:
    """What docker and podman files say together, the first of them first; files that do not exist are left out."""
    found = Credentials()
    for path in paths:
        try:
            config = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise CredentialsUnusable(f"{path} cannot be read: {error}") from error
        found = found.then(credentials_of(config, where=str(path)))
    return found


def usual_files(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where docker and podman keep logins; a file that is named explicitly is the only one."""
    if named := environment.get("REGISTRY_AUTH_FILE"):
        return [Path(named)]
    if named := environment.get("DOCKER_CONFIG"):
        return [Path(named) / "config.json"]
    runtime = environment.get("XDG_RUNTIME_DIR")
    podman = [Path(runtime) / "containers" / "auth.json"] if runtime else []
    return [Path.home() / ".docker" / "config.json", *podman]


def _login(entry: Any, where: str) -> Login | None:
    if not isinstance(entry, dict):
        raise CredentialsUnusable(f"{where} is not an object")
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            pair = base64.b64decode(str(entry["auth"]), validate=True).decode().strip("\0")
        except (binascii.Error, ValueError) as error:
            raise CredentialsUnusable(f"{where}: auth is not base64 of a name and a password") from error
        username, _, password = pair.partition(":")
    tokens = str(entry.get("identitytoken") or ""), str(entry.get("registrytoken") or "")
    return Login(username, password, *tokens) if username or any(tokens) else None


def _place(key: str) -> str:
    """`https://registry.example.org/v2/` and `registry.example.org` are the same place."""
    place = re.sub(r"^https?://", "", key.strip())
    return re.sub(r"/v[12]/?$", "", place).rstrip("/").lower()


def _places(reference: Reference) -> list[str]:
    parts = reference.repository.split("/")
    paths = ["/".join((reference.registry, *parts[:count])) for count in range(len(parts), 0, -1)]
    return [*paths, reference.registry]


def _helper_refused(registry: str, helper: str) -> CredentialsUnusable:
    return CredentialsUnusable(
        f"the login for {registry} is kept by the program docker-credential-{helper}, which is not run",
        hint=f"write it into a file of your own: docker --config DIR login {registry}, and set DOCKER_CONFIG=DIR",
    )
