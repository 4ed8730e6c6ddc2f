"""Whose rights a Preview has: those of whoever created it, and nothing more.

The server records the author on every Preview, as on all objects that act. Before anything is run, the author is asked
about: they must be able to write what the manifests hold and to list the XRs in scope. Steps get credentials that the
live revisions of their Compositions use; others only if the author may read the Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planform.api.authors import Author, author_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITION_REVISION, FUNCTION_REVISION
from planform.api.previews import PreviewSpec
from planform.client.protocol import Client
from planform.client.rights import Access, Rights
from planform.errors import Forbidden, NotFound, PlanformError
from planform.functions.errors import CredentialsUnavailable
from planform.functions.runner import CredentialSource
from planform.pipeline.modes import pipeline_of
from planform.pipeline.steps import parse_pipeline
from planform.preview.previewing import Previewer


class PreviewForbidden(Forbidden):
    """The author of a Preview may not do what it asks about."""


async def check_author(preview: Object, spec: PreviewSpec, client: Client, rights: Rights) -> Author | None:
    """Raises PreviewForbidden unless the author may write each manifest; gives the author, None if there is no record
    of one, which counts as an administrator."""
    author = author_of(preview)
    if author is None:
        return None
    change = spec.change
    wanted = [("patch", each, dict(each.get("metadata") or {})) for each in change.manifests or ()]
    wanted += [("delete", each, each) for each in change.deleted or ()]
    for verb, obj, names in wanted:
        await _check(author, verb, gvk_of(obj), names, client, rights)
    for revision in change.all_revisions:
        await _check(author, "get", COMPOSITION_REVISION, {"name": revision.name}, client, rights)
    if change.function_revision:
        for name in filter(None, (change.function_revision.name, change.function_revision.from_)):
            await _check(author, "get", FUNCTION_REVISION, {"name": name}, client, rights)
    return author


async def check_readable(author: Author | None, spec: PreviewSpec, previewer: Previewer, rights: Rights) -> None:
    """Raises PreviewForbidden unless the author may list every kind of XR that the change may reach."""
    if author is None:
        return
    for definition in previewer.reached_definitions():
        plural = str(definition.spec["names"]["plural"])
        for namespace in (spec.scope.namespaces if definition.namespaced else ()) or ("",):
            access = Access("list", definition.kind.group, plural, namespace)
            if not await rights.allows(author, access):
                raise PreviewForbidden(f'user "{author.user}" cannot {access}, whose XRs the change reaches')


async def _check(
    author: Author, verb: str, kind: GroupVersionKind, names: Mapping[str, Any], client: Client, rights: Rights
) -> None:
    try:
        served = await client.kind(kind)
    except NotFound:
        served = None
    plural = served.plural if served is not None else f"{kind.kind.lower()}s"
    namespace = str(names.get("namespace") or "") if served is None or served.namespaced else ""
    access = Access(verb, kind.group, plural, namespace, str(names.get("name") or ""))
    if not await rights.allows(author, access):
        raise PreviewForbidden(f'user "{author.user}" cannot {access}, which the preview is about')


class BoundedCredentials:
    """What steps of a preview get: Secrets that live revisions send to functions, and what the author may read."""

    def __init__(
        self, source: CredentialSource, author: Author | None, rights: Rights, known: frozenset[tuple[str, str]]
    ) -> None:
        self._source = source
        self._author = author
        self._rights = rights
        self._known = known

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        """Raises CredentialsUnavailable for a Secret that the author may not read."""
        if self._author is not None and (namespace, name) not in self._known:
            access = Access("get", "", "secrets", namespace, name)
            if not await self._rights.allows(self._author, access):
                raise CredentialsUnavailable(
                    f'user "{self._author.user}", whose preview this is, cannot {access}, and no revision that runs'
                    " now is given it"
                )
        return await self._source.read(namespace, name)


def known_credentials(revisions: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """The Secrets that revisions which exist send to functions."""
    found: set[tuple[str, str]] = set()
    for revision in revisions:
        spec = revision["spec"]
        try:
            steps = parse_pipeline({**spec, "pipeline": pipeline_of(spec)})
        except PlanformError:
            continue
        found.update((each.namespace, each.secret) for step in steps for each in step.credentials)
    return frozenset(found)
