"""From the name of a package to its content on this machine: where it is, what it says, and what of it can be run.

    DIRECTORY/blobs          what registries sent, by digest
    DIRECTORY/files/HEX      the files of a package's program, unpacked once for all revisions that run it
    DIRECTORY/verified/HEX   that a package was found to be signed with one of certain keys

Nothing is asked of a registry for what is known and here already, unless the pull policy is `Always`: a control plane
restarts without one. What reads packages and asks registries is imported when the first of them is wanted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol

from planform.api.kinds import Object
from planform.api.names import IMAGE_CONFIG, SECRET, SYSTEM_NAMESPACE
from planform.apiserver.auth.private_files import make_private_directory
from planform.client.protocol import Client
from planform.clock import Clock
from planform.errors import NotFound
from planform.packages.blobs import BlobStore, Image
from planform.packages.credentials import Credentials, credentials_from_secret
from planform.packages.errors import (
    CredentialsUnusable,
    InvalidPackage,
    PackageError,
    PackageNotFound,
    PackageTooLarge,
    SignatureInvalid,
)
from planform.packages.image_config import (
    Authority,
    ImageRules,
    Treatment,
    Verification,
    applied_refs,
    parse_image_config,
)
from planform.packages.references import Reference, parse_reference
from planform.packages.runtimes.executables import Executable

if TYPE_CHECKING:
    from planform.packages.oci import Descriptor
    from planform.packages.registry import RegistryClient
    from planform.packages.registry_session import Access
    from planform.packages.streams import ArchiveLimits
    from planform.packages.xpkg import Package

IF_NOT_PRESENT: Final = "IfNotPresent"
ALWAYS: Final = "Always"
NEVER: Final = "Never"
SPARED: Final = timedelta(hours=1)
"""How long what a registry sent is kept at least, though no revision needs it."""

_LOOK_AGAIN: Final = 2.0


class CannotUnpack(PackageError):
    """This machine cannot hold what a package is made of, or its files."""

    reason = "CannotUnpack"
    retryable = True


@dataclass(frozen=True, slots=True)
class Located:
    """What a package's name means now. `image` is where it is had from, after the rules for images."""

    package: str
    image: str
    digest: str
    treatment: Treatment

    @property
    def applied(self) -> Sequence[Mapping[str, str]]:
        return applied_refs(self.treatment)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A package that is here: what it says, and its program if it has one."""

    digest: str
    package: Package
    executable: Executable | None


class PackageSource(Protocol):
    """Whoever finds and brings packages. Errors are PackageErrors; those that may pass are `retryable`."""

    @property
    def namespace(self) -> str:
        """Where logins and keys are."""
        ...

    async def locate(self, package: str, *, policy: str = ..., pull_secrets: Sequence[str] = ...) -> Located: ...

    async def fetch(self, located: Located, *, policy: str = ..., pull_secrets: Sequence[str] = ...) -> Fetched: ...

    async def versions(self, package: str, *, pull_secrets: Sequence[str] = ...) -> list[str]: ...

    async def is_rewritten(self, package: str) -> bool: ...

    async def meaning(self, package: str) -> str: ...

    async def keep(self, digests: Collection[str]) -> float | None: ...

    def asks_for(self, secret: str) -> bool: ...


class RegistryPackages:
    """Packages from registries, kept below one directory."""

    def __init__(
        self,
        directory: Path,
        client: Client,
        *,
        clock: Clock,
        rng: Random,
        access: Access | None = None,
        namespace: str = SYSTEM_NAMESPACE,
        spare: timedelta = SPARED,
        unpacks: bool = True,
    ) -> None:
        """Without `unpacks`, programs run elsewhere, and of packages only what they say is wanted."""
        self._directory = directory
        self._files = directory / "files"
        self._verdicts = directory / "verified"
        self._client = client
        self._clock = clock
        self._rng = rng
        self._access = access
        self.namespace = namespace
        self._unpacks = unpacks
        self._spare = spare
        self._fetched: dict[str, Fetched] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._pulls = 0  # how many are under way
        self._sweeping = asyncio.Lock()
        self._asked_for: set[str] = set()  # the names of Secrets that packages depend on

    @cached_property
    def _blobs(self) -> BlobStore:
        make_private_directory(self._directory)
        return BlobStore(self._directory / "blobs")

    async def locate(self, package: str, *, policy: str = IF_NOT_PRESENT, pull_secrets: Sequence[str] = ()) -> Located:
        """Find out which content the name means. Raises PackageError."""
        treatment = ImageRules(await self._rules()).treatment(package)
        reference = parse_reference(treatment.image)
        if reference.digest:
            return Located(package, treatment.image, reference.digest, treatment)
        known = None if policy == ALWAYS else self._blobs.recall(str(reference))
        if known is None:
            if policy == NEVER:
                raise PackageNotFound(f"{reference} is not stored here, and must not be pulled")
            async with await self._registry(treatment, pull_secrets) as registry:
                known = await registry.resolve(reference)
            self._blobs.remember(str(reference), known)
        return Located(package, treatment.image, known.digest, treatment)

    async def fetch(
        self, located: Located, *, policy: str = IF_NOT_PRESENT, pull_secrets: Sequence[str] = ()
    ) -> Fetched:
        """Bring exactly this content here, checked as the rules for images ask. Raises PackageError."""
        async with self._locks.setdefault(located.digest, asyncio.Lock()):
            if located.treatment.verification is not None:
                await self._verify(located, located.treatment.verification, pull_secrets)
            known = self._fetched.get(located.digest)
            if known is not None and (known.executable is None or known.executable.root.is_dir()):
                return known
            async with self._pulling():
                try:
                    image = await self._pull(located, policy, pull_secrets)
                    fetched = await asyncio.to_thread(self._unpacked, located.digest, image)
                except OSError as error:
                    where = f"{located.image} cannot be kept on this machine"
                    raise CannotUnpack(f"{where}: {error.strerror or error}") from error
                self._fetched[located.digest] = fetched
            return fetched

    async def unpack_artifact(
        self, located: Located, destination: Path, *, max_bytes: int, limits: ArchiveLimits
    ) -> None:
        """Unpack what is no package but an artifact with layers of files, checked as packages are. Raises PackageError.

        The destination appears whole or not at all.
        """
        if located.treatment.verification is not None:
            await self._verify(located, located.treatment.verification, ())
        reference = parse_reference(located.image).pinned(located.digest)
        async with self._pulling(), await self._registry(located.treatment, ()) as registry:
            layers = await _layers(registry, reference, max_bytes)
            await asyncio.to_thread(self._unpack_layers, layers, destination, limits)

    def _unpack_layers(self, layers: Sequence[Descriptor], destination: Path, limits: ArchiveLimits) -> None:
        from planform.packages.durability import make_durable
        from planform.packages.extraction import extract_layers

        with TemporaryDirectory(dir=self._directory, prefix="artifact-") as scratch:
            unpacked = Path(scratch) / "files"
            extract_layers(self._blobs, layers, unpacked, limits=limits)
            make_durable(unpacked)
            unpacked.rename(destination)

    async def versions(self, package: str, *, pull_secrets: Sequence[str] = ()) -> list[str]:
        """All tags of a package's repository. Raises PackageError."""
        treatment = ImageRules(await self._rules()).treatment(package)
        async with await self._registry(treatment, pull_secrets) as registry:
            return await registry.tags(parse_reference(treatment.image, versioned=False))

    async def is_rewritten(self, package: str) -> bool:
        """Whether a rule says where else the package is to be had from. Raises PackageError."""
        return ImageRules(await self._rules()).treatment(package).image != package

    async def meaning(self, package: str) -> str:
        """The digest that a name is known to mean, without a question to anybody; empty if that is not known."""
        try:
            reference = parse_reference(ImageRules(await self._rules()).treatment(package).image)
        except PackageError:
            return ""
        known = None if reference.digest else self._blobs.recall(str(reference))
        return known.digest if known is not None else reference.digest

    def asks_for(self, secret: str) -> bool:
        """Whether the content of a Secret of our namespace decides about a package."""
        return secret in self._asked_for

    async def keep(self, digests: Collection[str]) -> float | None:
        """Delete everything of all other packages; gives the seconds after which there will be more to delete.

        Nothing is deleted as long as a package is on its way: which of the parts that are here it needs is known only
        when it has come. And what came from a registry a short while ago stays, for whoever goes back and forth.
        """
        async with self._sweeping:
            if self._pulls:
                return _LOOK_AGAIN
            left = await asyncio.to_thread(self._sweep, frozenset(digests))
            self._fetched = {digest: each for digest, each in self._fetched.items() if digest in digests}
            self._locks = {digest: lock for digest, lock in self._locks.items() if lock.locked()}
            return self._spare.total_seconds() if left else None

    @asynccontextmanager
    async def _pulling(self) -> AsyncIterator[None]:
        """While something comes, nothing is deleted; and what is deleted goes before something else comes."""
        async with self._sweeping:
            self._pulls += 1
        try:
            yield
        finally:
            self._pulls -= 1

    def _sweep(self, digests: Collection[str]) -> bool:
        """Whether anything is left that nobody needs."""
        if not self._directory.is_dir():
            return False
        kept = {_hex(digest) for digest in digests}
        # Files go before what they were unpacked from: a crash in between leaves what is still known to be here.
        for directory in self._files.iterdir() if self._files.is_dir() else ():
            if directory.name not in kept:
                shutil.rmtree(directory, ignore_errors=True)
        for verdict in self._verdicts.iterdir() if self._verdicts.is_dir() else ():
            if verdict.name.partition(".")[0] not in kept:
                verdict.unlink(missing_ok=True)
        needed = self._blobs.closure(digests)
        self._blobs.sweep(needed, older_than=(self._clock.now() - self._spare).timestamp())
        unused = {f"sha256:{file.name}" for file in self._blobs.unused(needed)}
        self._blobs.forget_names(needed | unused)
        return bool(unused)

    def _unpacked(self, digest: str, image: Image) -> Fetched:
        """Unpack the program's files; a crash or a power cut leaves nothing that looks whole and is not."""
        from planform.packages.durability import make_durable
        from planform.packages.unpacking import unpack_program
        from planform.packages.xpkg import read_package

        make_private_directory(self._files)
        package = read_package(image)
        if not self._unpacks:
            return Fetched(digest, package, None)
        return Fetched(
            digest, package, unpack_program(image, self._files / _hex(digest), before_it_counts=make_durable)
        )

    async def _pull(self, located: Located, policy: str, pull_secrets: Sequence[str]) -> Image:
        from planform.packages.registry import PullPolicy

        # The digest is known: what is here already need not be asked for again.
        wanted = PullPolicy.NEVER if policy == NEVER else PullPolicy.IF_NOT_PRESENT
        reference = parse_reference(located.image).pinned(located.digest)
        async with await self._registry(located.treatment, pull_secrets) as registry:
            return await registry.pull(reference, policy=wanted)

    async def _verify(self, located: Located, rule: Verification, pull_secrets: Sequence[str]) -> None:
        """Check who signed it. What was found once for a digest and these very keys holds, also after a restart."""
        from planform.packages.signatures import verify_image

        keys = {authority.name: await self._public_key(authority) for authority in rule.authorities}
        text = b"".join(len(key).to_bytes(4) + key for key in keys.values())
        verdict = self._verdicts / f"{_hex(located.digest)}.{hashlib.sha256(text).hexdigest()}"
        if verdict.exists():
            return
        async with self._pulling(), await self._registry(located.treatment, pull_secrets) as registry:
            found = await verify_image(registry, parse_reference(located.image), located.digest, keys)
            make_private_directory(self._verdicts)
            verdict.write_text(found.authority)

    async def _public_key(self, authority: Authority) -> bytes:
        secret = await self._secret(authority.secret)
        data = ((secret or {}).get("data") or {}).get(authority.key)
        if data is None:
            raise SignatureInvalid(f"Secret {authority.secret} of authority {authority.name} has no {authority.key}")
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise SignatureInvalid(f"{authority.key} of Secret {authority.secret} is not base64") from error

    async def _registry(self, treatment: Treatment, pull_secrets: Sequence[str]) -> RegistryClient:
        from planform.packages.registry import RegistryClient
        from planform.packages.registry_session import Access

        credentials = Credentials()
        for name in dict.fromkeys((*pull_secrets, *filter(None, (treatment.pull_secret,)))):
            secret = await self._secret(name)
            if secret is None:
                raise CredentialsUnusable(f"there is no Secret {name} in namespace {self.namespace}")
            credentials = credentials.then(credentials_from_secret(secret))
        return RegistryClient(
            self._blobs, credentials, access=self._access or Access(), clock=self._clock, rng=self._rng
        )

    async def _secret(self, name: str) -> Object | None:
        self._asked_for.add(name)
        try:
            return await self._client.get(SECRET, name, namespace=self.namespace)
        except NotFound:
            return None

    async def _rules(self) -> list[Any]:
        return [parse_image_config(each) for each in (await self._client.list(IMAGE_CONFIG)).items]


async def _layers(registry: RegistryClient, reference: Reference, max_bytes: int) -> Sequence[Descriptor]:
    """The layers of an artifact, which are here then. Their sizes are known before anything is fetched."""
    from planform.packages.oci import Manifest

    _, manifest = await registry.manifest(reference)
    if not isinstance(manifest, Manifest):
        raise InvalidPackage(f"{reference} is an index of images, not an artifact")
    size = sum(layer.size for layer in manifest.layers)
    if size > max_bytes:
        raise PackageTooLarge(f"{reference} has {size} bytes; at most {max_bytes} are fetched")
    for layer in manifest.layers:
        await registry.blob(reference, layer)
    return manifest.layers


def _hex(digest: str) -> str:
    return digest.partition(":")[2] or digest
