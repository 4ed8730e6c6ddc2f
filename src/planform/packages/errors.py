"""What can go wrong with a package on its way from a registry or a file to something that can be run."""

from __future__ import annotations

from planform.errors import PlanformError


class PackageError(PlanformError):
    """A package cannot be read, written, fetched or trusted."""

    reason = "PackageError"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint if hint is not None else type(self).hint


class InvalidReference(PackageError):
    """The name of a package is not one that a registry could have."""

    reason = "InvalidReference"
    hint = "name registry, repository and tag or digest, such as registry.example.org/team/function:v1.0.0"


class InvalidPackage(PackageError):
    """The bytes are not a package: its metadata, objects or layers are not what the format asks for."""

    reason = "InvalidPackage"


class UnsafePackage(PackageError):
    """The package would write or reach outside of its own directory; nothing of it was used."""

    reason = "UnsafePackage"


class PackageTooLarge(PackageError):
    """The package, or a part of it, is larger than what is taken."""

    reason = "PackageTooLarge"


class DigestMismatch(PackageError):
    """The bytes that came are not those that were asked for."""

    reason = "DigestMismatch"
    hint = "a registry, mirror or proxy altered them; ask another one"


class PackageNotFound(PackageError):
    """There is no such package, or it may not be seen without logging in."""

    reason = "PackageNotFound"


class RegistryRefused(PackageError):
    """The registry does not let us do this."""

    reason = "RegistryRefused"


class RegistryUnavailable(PackageError):
    """The registry cannot be reached, or cannot answer now."""

    reason = "RegistryUnavailable"
    retryable = True


class CredentialsUnusable(PackageError):
    """There are credentials for the registry, in a form that cannot be used here."""

    reason = "CredentialsUnusable"


class SignatureInvalid(PackageError):
    """No signature of the package was made with a key that is trusted for it."""

    reason = "SignatureInvalid"


class BuildFailed(PackageError):
    """A package cannot be made of this."""

    reason = "BuildFailed"
