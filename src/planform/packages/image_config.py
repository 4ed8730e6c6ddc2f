"""ImageConfig: rules by prefix of an image's name, for four purposes. Pure.

For each purpose the rule with the longest matching prefix counts; of equally long ones, the first by name. A rewrite
changes where a package is fetched from, never what it is called: other rules are then asked about the new name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from planform.api.metadata import name_of
from planform.packages.errors import PackageError

MATCH_PREFIX: Final = "Prefix"


class InvalidImageConfig(PackageError):
    """An ImageConfig asks for something that cannot be done."""

    reason = "InvalidImageConfig"


class Purpose(StrEnum):
    """Why an ImageConfig was used, in the words of `status.appliedImageConfigRefs`."""

    REWRITE = "RewriteImage"
    PULL_SECRET = "SetImagePullSecret"
    VERIFY = "VerifyImage"
    RUNTIME = "ConfigureRuntime"


@dataclass(frozen=True, slots=True)
class Authority:
    """Somebody whose signature counts: the Secret that holds the public key, and under which of its keys."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Who must have signed an image: any one of these."""

    authorities: tuple[Authority, ...]


@dataclass(frozen=True, slots=True)
class RuntimeConfigRef:
    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """One object, read. `verification` is parsed only when it is used, so that a bad one spoils nothing else."""

    name: str
    prefixes: tuple[str, ...]
    pull_secret: str = ""
    rewrite: str = ""
    runtime: RuntimeConfigRef | None = None
    verification: Mapping[str, Any] | None = None

    def longest_match(self, image: str) -> str | None:
        return max((prefix for prefix in self.prefixes if image.startswith(prefix)), key=len, default=None)


@dataclass(frozen=True, slots=True)
class Applied:
    """An ImageConfig that was used, and what for."""

    name: str
    reason: Purpose


@dataclass(frozen=True, slots=True)
class Treatment:
    """How one image is to be treated: where it is, with which login, checked how, run how, and who said so."""

    image: str
    pull_secret: str = ""
    verification: Verification | None = None
    runtime: RuntimeConfigRef | None = None
    applied: tuple[Applied, ...] = field(default=())


class ImageRules:
    """All ImageConfigs together."""

    def __init__(self, configs: Iterable[ImageConfig]) -> None:
        self._configs = sorted(configs, key=lambda config: config.name)

    def treatment(self, image: str) -> Treatment:
        """What all rules together say about an image. Raises InvalidImageConfig for a verification nobody can do."""
        applied: list[Applied] = []

        def used(config: ImageConfig | None, purpose: Purpose) -> ImageConfig | None:
            if config is not None:
                applied.append(Applied(config.name, purpose))
            return config

        where = image
        if (found := used(self._best(image, lambda each: bool(each.rewrite)), Purpose.REWRITE)) is not None:
            where = found.rewrite + image[len(found.longest_match(image) or "") :]
        login = used(self._best(where, lambda each: bool(each.pull_secret)), Purpose.PULL_SECRET)
        check = used(self._best(where, lambda each: each.verification is not None), Purpose.VERIFY)
        runtime = used(self._best(where, lambda each: each.runtime is not None), Purpose.RUNTIME)
        return Treatment(
            where,
            login.pull_secret if login is not None else "",
            _verification(check) if check is not None else None,
            runtime.runtime if runtime is not None else None,
            tuple(applied),
        )

    def concern(self, image: str) -> bool:
        """Whether any rule has a say about the image."""
        return any(config.longest_match(image) is not None for config in self._configs)

    def _best(self, image: str, serves: Callable[[ImageConfig], bool]) -> ImageConfig | None:
        best, length = None, -1
        for config in self._configs:
            match = config.longest_match(image) if serves(config) else None
            if match is not None and len(match) > length:
                best, length = config, len(match)
        return best


def parse_image_config(obj: Mapping[str, Any]) -> ImageConfig:
    """An ImageConfig object. Raises InvalidImageConfig."""
    name, spec = name_of(obj), obj.get("spec") or {}
    prefixes = []
    for match in spec.get("matchImages") or ():
        if match.get("type", MATCH_PREFIX) != MATCH_PREFIX:
            raise InvalidImageConfig(f"ImageConfig {name} matches by {match['type']}; only {MATCH_PREFIX} is known")
        if not match.get("prefix"):
            raise InvalidImageConfig(f"ImageConfig {name} matches an empty prefix, which would be every image")
        prefixes.append(str(match["prefix"]))
    runtime = _at(spec, "runtime", "configRef")
    return ImageConfig(
        name,
        tuple(prefixes),
        str(_at(spec, "registry", "authentication", "pullSecretRef", "name") or ""),
        str(_at(spec, "rewriteImage", "prefix") or ""),
        RuntimeConfigRef(
            str(runtime.get("apiVersion") or "pkg.crossplane.io/v1beta1"),
            str(runtime.get("kind") or "DeploymentRuntimeConfig"),
            str(runtime["name"]),
        )
        if isinstance(runtime, dict) and runtime.get("name")
        else None,
        spec.get("verification"),
    )


def _verification(config: ImageConfig) -> Verification:
    asked = config.verification or {}
    where = f"ImageConfig {config.name}"
    if asked.get("provider") != "Cosign":
        raise InvalidImageConfig(f"{where} verifies with {asked.get('provider')!r}; only Cosign is known")
    authorities = _at(asked, "cosign", "authorities") or ()
    if not authorities:
        raise InvalidImageConfig(f"{where} verifies with Cosign and names no authorities")
    return Verification(tuple(_authority(each, where) for each in authorities))


def _authority(value: Mapping[str, Any], where: str) -> Authority:
    name = str(value.get("name") or "")
    if value.get("keyless") is not None:
        raise InvalidImageConfig(
            f"{where}: authority {name} asks for keyless signatures, and keyless is not supported here: give the public"
            f" key of whoever signs in a Secret, by key.secretRef"
        )
    if value.get("attestations"):
        raise InvalidImageConfig(f"{where}: authority {name} asks for attestations, which are not checked here")
    secret, key = _at(value, "key", "secretRef", "name"), _at(value, "key", "secretRef", "key")
    if not secret or not key:
        raise InvalidImageConfig(
            f"{where}: authority {name} has no key",
            hint="give the public key of whoever signs in a Secret: key.secretRef",
        )
    hash_algorithm = _at(value, "key", "hashAlgorithm") or "sha256"
    if hash_algorithm != "sha256":
        raise InvalidImageConfig(f"{where}: authority {name} uses {hash_algorithm}; only sha256 is known")
    return Authority(name, str(secret), str(key))


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def applied_refs(treatment: Treatment) -> Sequence[dict[str, str]]:
    """`status.appliedImageConfigRefs`."""
    return [{"name": each.name, "reason": each.reason.value} for each in treatment.applied]
