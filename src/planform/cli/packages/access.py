"""How commands reach registries, what they keep between two runs, and how they show that something moves."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planform.cli.output import say
from planform.errors import UsageError
from planform.packages.blobs import BlobStore, Image, temporary_store
from planform.packages.errors import InvalidReference
from planform.packages.oci import Platform, parse_platform
from planform.packages.references import Reference, parse_reference
from planform.packages.tarballs import read_image

if TYPE_CHECKING:  # imported when a registry is asked: most commands ask none
    from planform.packages.registry import Progress, PullPolicy, RegistryClient, Report

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """What the options of a command say about registries."""

    auth_file: Path | None = None
    plain_http: tuple[str, ...] = ()
    insecure_skip_tls_verify: bool = False
    ca_file: Path | None = None
    cache: Path | None = None


def registry_options(command: F) -> F:
    """--auth-file, --plain-http, --insecure-skip-tls-verify, --ca-file and --cache-dir."""
    for option in (
        click.option(
            "--cache-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where downloads are kept.  [default: ~/.cache/planform/packages]",
        ),
        click.option(
            "--ca-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Certificates to trust besides the system's.",
        ),
        click.option("--insecure-skip-tls-verify", is_flag=True, help="Take any certificate."),
        click.option(
            "--plain-http",
            multiple=True,
            metavar="HOST[:PORT]",
            help="A registry without TLS; those on this machine are known.",
        ),
        click.option(
            "--auth-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Logins, as docker writes them.  [default: REGISTRY_AUTH_FILE, DOCKER_CONFIG, ~/.docker/config.json]",
        ),
    ):
        command = option(command)
    return command


def options_from(flags: dict[str, Any]) -> RegistryOptions:
    """Take what `registry_options` added out of a command's flags."""
    return RegistryOptions(
        flags.pop("auth_file"),
        flags.pop("plain_http"),
        flags.pop("insecure_skip_tls_verify"),
        flags.pop("ca_file"),
        flags.pop("cache_dir"),
    )


def package_cache(options: RegistryOptions = RegistryOptions()) -> BlobStore:  # noqa: B008  # frozen
    """What was downloaded before and is not downloaded again."""
    base = os.environ.get("XDG_CACHE_HOME")
    usual = (Path(base) if base else Path.home() / ".cache") / "planform" / "packages"
    return BlobStore(options.cache or usual)


@contextmanager
def store_for(options: RegistryOptions, *images: str) -> Iterator[BlobStore]:
    """Where images are put to be worked on: the cache if one of them comes from a registry, else nowhere lasting."""
    if any(image and not is_file(image) for image in images):
        yield package_cache(options)
    else:
        with temporary_store() as blobs:
            yield blobs


@asynccontextmanager
async def open_registry(blobs: BlobStore, options: RegistryOptions) -> AsyncIterator[RegistryClient]:
    from planform.packages.credentials import credentials_from_files, usual_files
    from planform.packages.registry import RegistryClient
    from planform.packages.registry_session import Access

    files = [options.auth_file] if options.auth_file is not None else usual_files()
    access = Access(
        plain_http=frozenset(options.plain_http),
        skip_verification=options.insecure_skip_tls_verify,
        authorities=options.ca_file,
    )
    async with RegistryClient(blobs, credentials_from_files(files), access=access) as registry:
        yield registry


async def find_image(
    where: str,
    blobs: BlobStore,
    options: RegistryOptions = RegistryOptions(),  # noqa: B008  # frozen
    *,
    platform: str = "",
    policy: PullPolicy | None = None,
) -> Image:
    """The image in a file or layout, or in a registry. Raises UsageError if the text names neither."""
    wanted = _platform(platform)
    if is_file(where):
        return read_image(Path(where), blobs, platform=wanted)
    if Path(where).suffix in (".xpkg", ".tar", ".tgz"):
        raise UsageError(f"there is no file {where}")
    from planform.packages.registry import PullPolicy

    reference = named(where)
    policy = policy or PullPolicy.IF_NOT_PRESENT
    with progress(f"pulling {reference}") as report:
        async with open_registry(blobs, options) as registry:
            return await registry.pull(reference, policy=policy, platform=wanted, report=report)


def named(text: str) -> Reference:
    """The package that a user means. Raises UsageError."""
    try:
        return parse_reference(text)
    except InvalidReference as error:
        raise UsageError(str(error), hint=error.hint) from error


def is_file(where: str) -> bool:
    return Path(where).exists()


@contextmanager
def progress(what: str) -> Iterator[Report]:
    """Say what moves: one line that changes on a terminal, one line in a pipe."""
    on_terminal = sys.stderr.isatty()
    if not on_terminal:
        say(what)

    def report(at: Progress) -> None:
        if on_terminal:
            share = 100 * at.done // max(1, at.total)
            click.echo(f"\r{what}: {share} % of {_size(at.total)} ", err=True, nl=False)

    try:
        yield report
    finally:
        if on_terminal:
            click.echo(err=True)


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count / 1024:.0f} KiB"


def _platform(text: str) -> Platform | None:
    return parse_platform(text) if text else None
