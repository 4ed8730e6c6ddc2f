"""`planform xpkg push|pull` and `planform function push`: packages to and from registries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from planform.cli.output import output_option, say, write_data
from planform.cli.packages.access import (
    RegistryOptions,
    find_image,
    named,
    open_registry,
    options_from,
    package_cache,
    progress,
    registry_options,
    store_for,
)
from planform.cli.packages.showing import described
from planform.errors import UsageError
from planform.packages.blobs import BlobStore, Image
from planform.packages.building import file_name
from planform.packages.oci import Descriptor
from planform.packages.references import Reference
from planform.packages.tarballs import read_image, write_xpkg
from planform.packages.xpkg import read_package


@click.command()
@click.argument("reference")
@click.option(
    "-f",
    "--package-files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The package; several are one for each platform.  [default: the only .xpkg here]",
)
@output_option("text", "json", "yaml", default="text")
@registry_options
def push(reference: str, package_files: tuple[Path, ...], output: str, **flags: Any) -> None:
    """Send a package to a registry, and print its name with the digest: `planform xpkg push HOST/PATH:TAG`."""
    options = options_from(flags)
    wanted = named(reference)
    files = package_files or (_only_package(),)
    with store_for(options) as blobs:
        images = [read_image(path, blobs) for path in files]
        for image in images:
            read_package(image)  # what is no package must not look like one
        sent = asyncio.run(_send(images, wanted, blobs, options))
    pinned = wanted.pinned(sent.digest)
    if output == "text":
        click.echo(pinned)
    else:
        write_data({"reference": str(pinned), "digest": sent.digest, "size": sent.size}, output)


@click.command()
@click.argument("reference")
@click.option(
    "--package-file", type=click.Path(dir_okay=False, path_type=Path), help="Write here.  [default: NAME-DIGEST.xpkg]"
)
@click.option("--platform", default="", metavar="OS/ARCH", help="Which one of a package for several platforms.")
@click.option("--offline", is_flag=True, help="Ask no registry: take what was pulled before.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A public key of cosign; one of them must have signed the package.",
)
@output_option("text", "json", "yaml", default="text")
@registry_options
def pull(
    reference: str,
    package_file: Path | None,
    platform: str,
    offline: bool,
    keys: tuple[Path, ...],
    output: str,
    **flags: Any,
) -> None:
    """Fetch a package into a file. An interrupted download goes on where it stopped."""
    from planform.packages.registry import PullPolicy
    from planform.packages.signatures import verify_image

    options = options_from(flags)
    wanted = named(reference)
    blobs = package_cache(options)
    if keys and offline:
        raise UsageError("signatures are kept in the registry: --key needs it, and --offline asks none")

    async def check() -> str:
        async with open_registry(blobs, options) as registry:
            digest = wanted.digest or (await registry.resolve(wanted)).digest
            trusted = {str(path): path.read_bytes() for path in keys}
            return (await verify_image(registry, wanted, digest, trusted)).digest

    if keys:
        wanted = wanted.pinned(asyncio.run(check()))  # what was signed is what is pulled
        say(f"{wanted} is signed")
    policy = PullPolicy.NEVER if offline else PullPolicy.ALWAYS
    image = asyncio.run(find_image(str(wanted), blobs, options, platform=platform, policy=policy))
    package = read_package(image)
    path = package_file or Path(file_name(image, package))
    write_xpkg(image, path)
    if output == "text":
        click.echo(path)
    else:
        write_data({"file": str(path), **described(image, package)}, output)


async def _send(images: Sequence[Image], to: Reference, blobs: BlobStore, options: RegistryOptions) -> Descriptor:
    async with open_registry(blobs, options) as registry:
        with progress(f"pushing {to}") as report:
            if len(images) > 1:
                return await registry.push_index(images, to, report=report)
            return await registry.push(images[0], to, report=report)


def _only_package() -> Path:
    found = sorted(Path().glob("*.xpkg"))
    if len(found) == 1:
        return found[0]
    there = f"there are {', '.join(map(str, found[:3]))}" if found else "there is no .xpkg here"
    raise UsageError(f"which package? {there}", hint="name it with -f")
