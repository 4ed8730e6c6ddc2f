"""Which kinds a user may still read. A watch that is open outlives the grant it was opened with, by minutes.

One SelfSubjectRulesReview tells of all kinds at once. What it does not show is asked for one by one, since it may be
incomplete: an authoriser that decides elsewhere lists no rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import GroupVersionKind
from planform.errors import Forbidden, NotFound, PlanformError, Unauthorized
from planform.web import rows
from planform.web.upstream import Upstream

NOWHERE: Final = "planform-dashboard-asks"
"""A namespace that nobody has: rules that hold there hold everywhere."""
_GROUP: Final = "authorization.k8s.io/v1"


async def lost(
    upstream: Upstream,
    kinds: Iterable[GroupVersionKind],
    *,
    namespace: str = "",
    doubtful: Collection[GroupVersionKind] | None = None,
) -> frozenset[GroupVersionKind] | None:
    """Those of these kinds that may not be listed, in all namespaces or in one; None if nobody can say.

    What the rules do not show is asked for one by one; `doubtful` are the kinds that are worth it, all unless given.
    A user who is not known any more has lost everything.
    """
    asked = frozenset(kinds)
    try:
        review = await upstream.client.create(
            {"apiVersion": _GROUP, "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace or NOWHERE}}
        )
        rules = rows.sequence(rows.mapping(review.get("status")).get("resourceRules"))
    except Unauthorized:
        return asked
    except (Forbidden, NotFound):
        rules = []  # such reviews are not for this user, or not served
    except PlanformError:
        return None
    resources: dict[GroupVersionKind, str] = {}
    for gvk in asked:
        try:
            resources[gvk] = (await upstream.client.kind(gvk)).plural
        except PlanformError:
            continue  # what is not served has nothing to hide
    unshown = [gvk for gvk, plural in resources.items() if not covers(rules, gvk.group, plural)]
    ask = [gvk for gvk in unshown if doubtful is None or gvk in doubtful]
    refused = await asyncio.gather(*(_is_refused(upstream, gvk, resources[gvk], namespace) for gvk in ask))
    allowed = {gvk for gvk, is_refused in zip(ask, refused, strict=True) if not is_refused}
    return frozenset(unshown) - allowed


def covers(rules: Sequence[Mapping[str, Any]], group: str, resource: str, verb: str = "list") -> bool:
    """Whether one of the rules lets the verb be done to every object of a resource."""
    return any(
        not rule.get("resourceNames")
        and {"*", verb} & set(rows.sequence(rule.get("verbs")))
        and {"*", group} & set(rows.sequence(rule.get("apiGroups")))
        and {"*", resource} & set(rows.sequence(rule.get("resources")))
        for rule in map(rows.mapping, rules)
    )


async def _is_refused(upstream: Upstream, gvk: GroupVersionKind, resource: str, namespace: str) -> bool:
    attributes = {
        "verb": "list",
        "group": gvk.group,
        "resource": resource,
        **({"namespace": namespace} if namespace else {}),
    }
    try:
        review = await upstream.client.create(
            {"apiVersion": _GROUP, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        )
    except Unauthorized:
        return True
    except PlanformError:
        return False
    return rows.mapping(review.get("status")).get("allowed") is False
