"""`planform xpkg build` and `planform function build`: packages from what an author has on disk."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from planform.cli.output import output_option, say, write_data
from planform.cli.packages.access import RegistryOptions, find_image, options_from, registry_options, store_for
from planform.cli.packages.showing import described
from planform.errors import UsageError
from planform.packages.blobs import BlobStore, Image
from planform.packages.building import Program, Source, assemble, file_name, read_source
from planform.packages.oci import this_platform
from planform.packages.payloads import Payload, RuntimeKind, is_planform_only, payload_of
from planform.packages.programs import Vendoring, executable_program, python_program
from planform.packages.tarballs import write_xpkg
from planform.packages.xpkg import PackageKind

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Build:
    """What to build, and of what. At most one of `python`, `executable`, `runtime_image` and `oneshot` is given."""

    root: Path
    examples: Path | None
    ignore: tuple[str, ...]
    package_file: Path | None
    output: str
    registry: RegistryOptions
    platform: str = ""
    python: Path | None = None
    entry: str = ""
    vendoring: Vendoring = field(default_factory=Vendoring)
    executable: Path | None = None
    runtime_image: str = ""
    oneshot: Path | None = None
    base_image: str = ""


def _common(command: F) -> F:
    for option in (
        registry_options,
        output_option("text", "json", "yaml", default="text"),
        click.option(
            "--package-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write here.  [default: NAME-DIGEST.xpkg]",
        ),
        click.option(
            "--platform",
            default="",
            metavar="OS/ARCH",
            help="Which one of an image for several platforms.  [default: this machine's]",
        ),
        click.option("--ignore", multiple=True, metavar="GLOB", help="YAML files to leave out."),
        click.option(
            "-e",
            "--examples-root",
            type=click.Path(file_okay=False, path_type=Path),
            help="Examples to add.  [default: examples/ of the package]",
        ),
        click.option(
            "--embed-runtime-image-tarball",
            type=_FILE,
            help="The same, from a file that `docker save` or buildah wrote.",
        ),
        click.option(
            "--embed-runtime-image", default="", metavar="REF", help="An image whose program serves, from a registry."
        ),
        click.option(
            "--base-image",
            default="",
            metavar="REF|FILE",
            help="Put the program on this image, so that the package also runs on Crossplane.",
        ),
        click.option("--executable", type=_FILE, help="The program, as one file."),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "-f",
    "--package-root",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    show_default=True,
    help="The directory of crossplane.yaml.",
)
@_common
def build(**flags: Any) -> None:
    """Build a package from the YAML files of a directory: crossplane.yaml, and the objects it installs.

    Its program is an image or one executable. For functions in Python there is `planform function build`.
    """
    _build(Build(root=flags["package_root"], registry=options_from(flags), **_programs(flags), **_shared(flags)))


@click.command("build")
@click.argument("directory", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--entry",
    default="",
    metavar="FILE.py[:NAME]",
    help="The function.  [default: the project's script, function.py or main.py]",
)
@click.option(
    "--requirements", type=_FILE, help="What to install, as pip reads it.  [default: the project's dependencies]"
)
@click.option("--find-links", multiple=True, metavar="DIR", help="Where else to look for wheels.")
@click.option("--no-index", is_flag=True, help="Look for wheels nowhere else.")
@click.option("--from-oci-tarball", type=_FILE, help="Package this image, which runs once for each call.")
@_common
def function_build(directory: Path, **flags: Any) -> None:
    """Build a function: the Python project in DIRECTORY with its dependencies, or an executable, or an image.

    The package is described by package/crossplane.yaml or crossplane.yaml. The same input gives the same digest.
    """
    root = next((each for each in (directory / "package", directory) if (each / "crossplane.yaml").is_file()), None)
    if root is None:
        raise UsageError(
            f"{directory} has no crossplane.yaml and no package/crossplane.yaml", hint="planform xpkg init"
        )
    programs = _programs(flags)
    request = Build(
        root=root,
        registry=options_from(flags),
        python=None if any(value for name, value in programs.items() if name != "base_image") else directory,
        entry=flags["entry"],
        vendoring=Vendoring(flags["requirements"], flags["find_links"], flags["no_index"]),
        **programs,
        **_shared(flags, plain=root == directory),
    )
    _build(request)


def _shared(flags: dict[str, Any], *, plain: bool = False) -> dict[str, Any]:
    """`plain` if the package's YAML lies beside other things: then only what stands in the directory itself counts."""
    return {
        "examples": flags["examples_root"],
        "ignore": (*flags["ignore"], *(("*/*",) if plain else ())),
        "package_file": flags["package_file"],
        "output": flags["output"],
        "platform": flags["platform"],
    }


def _programs(flags: dict[str, Any]) -> dict[str, Any]:
    """The program that the options name: one at most. Raises UsageError."""
    named = ("executable", "embed_runtime_image", "embed_runtime_image_tarball", "from_oci_tarball")
    given = [name for name in named if flags.get(name)]
    if len(given) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{options} are two programs, and a package has one")
    if flags["base_image"] and given and given != ["executable"]:
        raise UsageError("--base-image is for programs that are not images themselves")
    file = flags["embed_runtime_image_tarball"]
    return {
        "executable": flags["executable"],
        "runtime_image": flags["embed_runtime_image"] or (str(file) if file is not None else ""),
        "oneshot": flags.get("from_oci_tarball"),
        "base_image": flags["base_image"],
    }


def _build(request: Build) -> None:
    source = read_source(request.root, examples=request.examples, ignore=request.ignore)
    if request.python is not None and source.package.kind is not PackageKind.FUNCTION:
        raise UsageError(f"{request.root} describes a {source.package.kind}", hint="planform xpkg build builds those")
    scratch = Path(tempfile.mkdtemp(prefix="planform-build-"))
    try:
        with store_for(request.registry, request.runtime_image, request.base_image) as blobs:
            program, base = asyncio.run(_program(request, blobs, scratch))
            image = assemble(blobs, source, program, base=base)
            path = request.package_file or Path(file_name(image, source.package))
            write_xpkg(image, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _report(request, source, image, path)


async def _program(request: Build, blobs: BlobStore, scratch: Path) -> tuple[Program | None, Image | None]:
    """The program of the package, and the image below it."""

    async def image(where: str) -> Image:
        platform = request.platform or str(this_platform())
        return await find_image(where, blobs, request.registry, platform=platform)

    if request.oneshot is not None:
        return Program(Payload(RuntimeKind.ONESHOT)), await image(str(request.oneshot))
    if request.runtime_image:
        return Program(Payload(RuntimeKind.CONTAINER)), await image(request.runtime_image)
    base = await image(request.base_image) if request.base_image else None
    if request.executable is not None:
        return executable_program(request.executable), base
    if request.python is None:
        return None, None
    say("installing what the project depends on")
    leave_out = [request.root] if request.root != request.python else []
    program = python_program(
        request.python, scratch, entry=request.entry, leave_out=leave_out, vendoring=request.vendoring
    )
    return program, base


def _report(request: Build, source: Source, image: Image, path: Path) -> None:
    if is_planform_only(image):
        why = "its image runs once for each call" if request.oneshot is not None else "it has no --base-image"
        say(f"{path} is for planform only, and does not run on Crossplane: {why}")
    if source.package.kind is not PackageKind.CONFIGURATION and payload_of(image) is None:
        say(f"{path} brings no program, so nobody can run it: name one with --executable or --embed-runtime-image")
    if request.output == "text":
        click.echo(path)
    else:
        write_data({"file": str(path), **described(image, source.package)}, request.output)
