#!/usr/bin/env python3
"""What a release of planform is made of: exact versions with hashes, a bill of materials, and every licence.

    tools/supply_chain.py licences           check the licence of every dependency, those for development included
    tools/supply_chain.py licences --list    the same, and print them all
    tools/supply_chain.py lock               write constraints-release.txt anew: asks the package index for hashes
    tools/supply_chain.py lock --check       change nothing; exit with 1 if it does not fit constraints.txt
    tools/supply_chain.py sbom WHEEL FILE    write a CycloneDX bill of materials of a built wheel

The dashboard's page is built from npm packages, whose versions, digests and licences are those of ui/package-lock.json.
Versions are those of constraints.txt; which packages belong to a release follows from what the installed ones require.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
import tomllib
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT: Final = Path(__file__).parents[1]
CONSTRAINTS: Final = ROOT / "constraints.txt"
RELEASE: Final = ROOT / "constraints-release.txt"
PAGE_LOCK: Final = ROOT / "ui" / "package-lock.json"
OURS: Final = ("planform", "planform-sdk")
RELEASED_EXTRAS: Final = ("functions", "starlark", "kcl")
INDEX: Final = "https://pypi.org/simple"

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    }
)
"""Licences that put no conditions on our own code; MPL-2.0 puts them on changes to its own files only."""

_SPELLINGS: Final[Mapping[str, str]] = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "apache": "Apache-2.0",
    "bsd license": "BSD",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "mit license": "MIT",
    "the mit license": "MIT",
    "mit-cmu": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mozilla public license 2.0": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "psf": "PSF-2.0",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "the unlicense (unlicense)": "Unlicense",
}
_OR: Final = re.compile(r"\s+or\s+|\s*/\s*", re.IGNORECASE)
_AND: Final = re.compile(r"\s+and\s+|\s*,\s+(?!version)", re.IGNORECASE)
_LINK: Final = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})')


@dataclass(frozen=True)
class Package:
    """One dependency as it is installed."""

    name: str
    version: str
    licence: str

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


@dataclass(frozen=True)
class PagePackage:
    """One npm package of the dashboard's page; what `is_shipped` has code in the wheel, the others only build it."""

    name: str
    version: str
    licence: str
    sha512: str
    is_shipped: bool
    requires: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        return f"pkg:npm/{self.name.replace('@', '%40')}@{self.version}"


# -- which packages there are


def pins() -> dict[str, str]:
    """The version of every package, as constraints.txt fixes it."""
    found: dict[str, str] = {}
    for line in CONSTRAINTS.read_text().splitlines():
        name, equals, version = line.partition("==")
        if equals and not name.startswith("#"):
            found[canonicalize_name(name.strip())] = version.split(";")[0].strip()
    return found


def required(*extras: str) -> dict[str, str]:
    """Everything that planform with these extras brings along, by name, and why; our own distributions left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found: dict[str, str] = {}
    rest = [(text, "planform") for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while rest:
        text, by = rest.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name not in OURS:
            found.setdefault(name, by)
        rest += [(each, name) for each in _requirements_of(name, requirement.extras)]
    return dict(sorted(found.items()))


def _requirements_of(name: str, extras: Iterable[str]) -> Iterator[str]:
    for text in metadata.distribution(name).requires or ():
        marker = Requirement(text).marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield text.partition(";")[0]


def packages(names: Iterable[str]) -> list[Package]:
    found = []
    for name in names:
        installed = metadata.distribution(name)
        found.append(Package(canonicalize_name(name), installed.version, licence_of(installed.metadata)))
    return found


def page_packages(lock_file: Path = PAGE_LOCK) -> list[PagePackage]:
    """Every npm package that the lock names, each version once."""
    found: dict[tuple[str, str], PagePackage] = {}
    for place, about in json.loads(lock_file.read_text())["packages"].items():
        if not place:  # the page itself
            continue
        name = place.rpartition("node_modules/")[2]
        integrity = str(about.get("integrity", "")).removeprefix("sha512-")
        found[name, about["version"]] = PagePackage(
            name=name,
            version=about["version"],
            licence=str(about.get("license") or "unknown"),
            sha512=base64.b64decode(integrity).hex(),
            is_shipped=not (about.get("dev") or about.get("devOptional")),
            requires=(*about.get("dependencies", ()), *about.get("peerDependencies", ())),
        )
    return [found[key] for key in sorted(found)]


# -- licences


def licence_of(about: metadata.PackageMetadata) -> str:
    """What a package says of its licence: the expression, else its classifiers, else the first line of the text."""
    for expression in about.get_all("License-Expression") or ():
        return str(expression).strip()
    classified = [
        each.rpartition(" :: ")[2]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License ::") and each not in ("License :: OSI Approved", "License :: DFSG approved")
    ]
    if classified:
        return " AND ".join(_SPELLINGS.get(each.lower(), each) for each in classified)
    text = "\n".join(map(str, about.get_all("License") or ())).strip()
    first = text.splitlines()[0].strip() if text else ""
    return _SPELLINGS.get(first.lower(), first) or "unknown"


def is_allowed(licence: str) -> bool:
    """Whether an expression can be met by allowed licences alone: one of `A OR B`, all of `A AND B`."""
    bare = licence.replace("(", " ").replace(")", " ").strip()
    if licence in ALLOWED or _SPELLINGS.get(licence.lower()) in ALLOWED:
        return True
    return all(any(_is_one(choice) for choice in _OR.split(part)) for part in _AND.split(bare))


def _is_one(name: str) -> bool:
    name = name.partition(" WITH ")[0].strip()
    return name in ALLOWED or _SPELLINGS.get(name.lower()) in ALLOWED


def licences(*, show: bool) -> int:
    released = required(*RELEASED_EXTRAS)
    everything = packages(required(*RELEASED_EXTRAS, "dev"))
    page = page_packages()
    checked: list[Package | PagePackage] = [*everything, *page]
    refused = [each for each in checked if not is_allowed(each.licence)]
    if show:
        for each in everything:
            use = "release" if each.name in released else "development"
            print(f"{each.name:40} {each.version:16} {use:12} {each.licence}")
        for part in page:
            use = "page" if part.is_shipped else "page's build"
            print(f"{part.name:40} {part.version:16} {use:12} {part.licence}")
    for found in refused:
        print(f"error: {found.name} {found.version}: its licence is not among those we take: {found.licence}")
    if not refused:
        shipped = sum(each.is_shipped for each in page)
        print(
            f"licences: {len(everything)} dependencies, {len(released)} of them in a release; "
            f"{len(page)} npm packages, {shipped} of them in the page; all allowed"
        )
    return 1 if refused else 0


# -- versions and hashes


def lock_problems(text: str) -> list[str]:
    """What is wrong with the release's constraints; nothing if they are exact, hashed and those of constraints.txt."""
    locked = {
        canonicalize_name(match[1]): (match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", match[3]))
        for match in re.finditer(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)((?:[^\n]*\\\n)*[^\n]*)", text, re.MULTILINE)
    }
    wanted, fixed = required(*RELEASED_EXTRAS), pins()
    problems = [f"{name} is missing, which {by} requires" for name, by in wanted.items() if name not in locked]
    problems += [f"{name} is not required by anything" for name in locked if name not in wanted]
    for name, (version, hashes) in locked.items():
        if name in fixed and version != fixed[name]:
            problems.append(f"{name} is {version}, but constraints.txt has {fixed[name]}")
        if not hashes:
            problems.append(f"{name} has no hash")
    return problems


def lock(*, check: bool) -> int:
    if check:
        problems = lock_problems(RELEASE.read_text())
        for problem in problems:
            print(f"error: {RELEASE.name}: {problem}; run tools/supply_chain.py lock")
        return 1 if problems else 0
    fixed = pins()
    lines = [
        "# What a release is installed with: pip install --require-hashes -r constraints-release.txt",
        "# Written by tools/supply_chain.py lock.",
    ]
    for name, by in required(*RELEASED_EXTRAS).items():
        version = fixed.get(name) or metadata.version(name)
        hashes = sorted(_hashes(name, version))
        if not hashes:
            print(f"error: the index has no file of {name} {version}")
            return 1
        shown = " \\\n".join(f"    --hash=sha256:{each}" for each in hashes)
        lines.append(f"{name}=={version} \\\n{shown}\n    # via {by}")
    RELEASE.write_text("\n".join(lines) + "\n")
    print(f"wrote {RELEASE.name}")
    return 0


def _hashes(name: str, version: str) -> Iterator[str]:
    """The hashes of all files of one version, for every platform there are wheels for."""
    request = urllib.request.Request(f"{INDEX}/{name}/", headers={"accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    for filename, digest in _LINK.findall(page):
        if _version_of(filename) == version:
            yield digest


def _version_of(filename: str) -> str:
    try:
        if filename.endswith(".whl"):
            return str(parse_wheel_filename(filename)[1])
        return str(parse_sdist_filename(filename)[1])
    except ValueError:  # an old installer of some kind
        return ""


# -- the bill of materials


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """CycloneDX 1.5: the wheel, and what an installation of it with all extras consists of."""
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts = packages(required(*RELEASED_EXTRAS))
    page = [each for each in page_packages() if each.is_shipped]
    locked = RELEASE.read_text() if RELEASE.exists() else ""
    root = f"pkg:pypi/{name}@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{root}#{digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": version,
                "purl": root,
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [*(_component(each, locked) for each in parts), *map(_page_component, page)],
        "dependencies": [
            {
                "ref": root,
                "dependsOn": [*(each.purl for each in parts if _is_direct(each)), *(each.purl for each in page)],
            },
            *({"ref": each.purl, "dependsOn": _depends_on(each, parts)} for each in parts),
            *(
                {"ref": each.purl, "dependsOn": [other.purl for other in page if other.name in each.requires]}
                for each in page
            ),
        ],
    }


def _component(package: Package, locked: str) -> dict[str, Any]:
    block = re.search(rf"^{re.escape(package.name)}==[^\n]*\n((?:    --hash[^\n]*\n)*)", locked, re.MULTILINE)
    hashes = re.findall(r"sha256:([0-9a-f]{64})", block[1]) if block else []
    spdx = is_allowed(package.licence) and not re.search(r"\b(BSD)\b(?!-)", package.licence)
    licence = {"expression": package.licence} if spdx else {"license": {"name": package.licence}}
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "licenses": [licence],
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
            }
        ],
    }


def _page_component(package: PagePackage) -> dict[str, Any]:
    url = f"https://www.npmjs.com/package/{package.name}/v/{package.version}"
    digest = {"alg": "SHA-512", "content": package.sha512}
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "licenses": [{"expression": package.licence}],
        "externalReferences": [{"type": "distribution", "url": url, "hashes": [digest]}],
    }


def _is_direct(package: Package) -> bool:
    return required(*RELEASED_EXTRAS).get(package.name) in OURS


def _depends_on(package: Package, parts: Sequence[Package]) -> list[str]:
    wanted = {canonicalize_name(Requirement(text).name) for text in _requirements_of(package.name, ())}
    return [each.purl for each in parts if each.name in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("licences").add_argument("--list", action="store_true")
    commands.add_parser("lock").add_argument("--check", action="store_true")
    sbom = commands.add_parser("sbom")
    sbom.add_argument("wheel", type=Path)
    sbom.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    match options.command:
        case "licences":
            return licences(show=options.list)
        case "lock":
            return lock(check=options.check)
        case _:
            options.file.write_text(json.dumps(bill_of_materials(options.wheel), indent=2) + "\n")
            print(f"wrote {options.file}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
