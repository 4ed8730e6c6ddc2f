"""The admission plugins: one list of which there are, what each is asked about, and how a real API server asks it.

The embedded engine's chain, the webhook and its registration are all made of `PLUGINS`, so that a rule that holds on
one engine holds on the other. In the embedded chain a plugin is asked about the writes that it wants, and no others.

What an API server does when nobody answers: protection from deletion must hold while we are away, so deleting what is
marked as in use then fails; only objects that carry the mark are concerned. Who writes what acts must be recorded, or
it would count as an administrator's: those writes fail, too. Everything else is advice at the door: without it a
mistake is told a moment later, by a condition, and the rules of the CRDs hold anyway; so those writes go through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from planform.api.authors import AUTHORED, SERVICE_ACCOUNT_ANNOTATION
from planform.api.names import (
    BLUEPRINTS_GROUP,
    EXTENSIONS_GROUP,
    JOURNAL_GROUP,
    OPERATIONS_GROUP,
    PROTECTION_GROUP,
    ROLLOUT_GROUP,
)
from planform.apiserver.admission.chain import Admission, AdmissionPlugin, Operation
from planform.usages.usages import IN_USE_LABEL, USAGES_WEBHOOK

Path = Literal["/validate", "/bind", "/record", "/review"]

VALIDATE: Final = "/validate"
BIND: Final = "/bind"
RECORD: Final = "/record"
REVIEW: Final = "/review"
MUTATING_PATHS: Final = (BIND, RECORD, REVIEW)

_WRITES: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE")
_NAMES_ACCOUNT: Final = (
    f"has(object.metadata.annotations) && '{SERVICE_ACCOUNT_ANNOTATION}' in object.metadata.annotations"
)
_HOLDS_IN_ANOTHER_NAMESPACE: Final = " || ".join(
    f"(has(object.spec) && has(object.spec.of) && has(object.spec.of.{side}) && has(object.spec.of.{side}.namespace)"
    f" && !(object.spec.of.{side}.namespace in ['', request.namespace]))"
    for side in ("resourceRef", "resourceSelector")
)
_REVISION: Final = (
    "(has({0}.spec) && has({0}.spec.crossplane) && has({0}.spec.crossplane.compositionRevisionRef)"
    " ? {0}.spec.crossplane.compositionRevisionRef.name"
    " : has({0}.spec) && has({0}.spec.compositionRevisionRef) ? {0}.spec.compositionRevisionRef.name : '')"
)
_REFERS_TO_ANOTHER_REVISION: Final = (
    f"request.operation in ['CREATE', 'UPDATE'] && {_REVISION.format('object')} != '' && "
    f"(request.operation == 'CREATE' || {_REVISION.format('object')} != {_REVISION.format('oldObject')})"
)
"""Only these writes are asked about: everything else costs an API server one expression."""
_LOCKED: Final = "has(object.versionPolicy) && object.versionPolicy == 'Lock'"


@dataclass(frozen=True, slots=True)
class Rule:
    """Writes that a plugin wants to be asked about; `*` is any group, or any resource."""

    group: str
    resources: tuple[str, ...]
    operations: tuple[Operation, ...] = _WRITES

    def matches(self, admission: Admission) -> bool:
        kind = admission.kind
        return (
            admission.operation in self.operations
            and self.group in ("*", kind.group)
            and ("*" in self.resources or kind.plural in self.resources)
        )


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of our registration. Its API server asks about the rules, as far as the conditions hold."""

    name: str
    path: Path
    rules: tuple[Rule, ...]
    fails_closed: bool
    conditions: Mapping[str, str] = field(default_factory=dict)
    not_our_own: bool = False
    """Nobody is asked about the control plane's own writes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the objects concerned; all are without."""
    has_side_effects: bool = False
    """Whether answering writes something, which it does not for a dry run."""
    timeout: int = 5
    """Seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """One plugin: what it is asked about in the embedded chain, and its webhooks. Without any, a real API server does
    the same by itself; without rules, the embedded one does."""

    name: str
    rules: tuple[Rule, ...]
    hooks: tuple[Hook, ...] = ()


_ESCALATION: Final = Rule("rbac.authorization.k8s.io", ("roles", "clusterroles", "rolebindings", "clusterrolebindings"))
_PARAMETERS: Final = Rule("admissionregistration.k8s.io", ("*",))


def plural_of(kind: str) -> str:
    """The resource of one of our kinds."""
    return f"{kind[:-1]}ies".lower() if kind.endswith("y") else f"{kind}s".lower()


_AUTHORED: Final = tuple(
    Rule(group, tuple(sorted(plural_of(kind) for kind in kinds))) for group, kinds in AUTHORED.items()
)
_NAMESPACES: Final = Rule("", ("namespaces",))
_USAGES: Final = Rule(PROTECTION_GROUP, ("usages",))
_PIPELINES: Final = (
    Rule(EXTENSIONS_GROUP, ("compositions", "compositionrevisions")),
    Rule(OPERATIONS_GROUP, ("operations", "cronoperations", "watchoperations")),
)
_DECISIONS: Final = Rule(ROLLOUT_GROUP, ("rolloutactions", "rollouts"), ("CREATE",))
_ANY_WRITE: Final = Rule("*", ("*",))
_DELETIONS: Final = Rule("*", ("*",), ("DELETE",))
_BLUEPRINTS: Final = Rule(BLUEPRINTS_GROUP, ("blueprints", "actionsets", "profiles"))
_LOCKS: Final = Rule(BLUEPRINTS_GROUP, ("blueprints",))

ESCALATION: Final = Plugin("escalation", (_ESCALATION,))
PARAMETERS: Final = Plugin("parameters", (_PARAMETERS,))
AUTHORSHIP: Final = Plugin(
    "authorship",
    (*_AUTHORED, _NAMESPACES, _USAGES),
    (
        Hook("authors.planform.dev", RECORD, _AUTHORED, fails_closed=True, not_our_own=True),
        Hook(
            "namespaces.planform.dev",
            RECORD,
            (_NAMESPACES,),
            fails_closed=True,
            not_our_own=True,
            conditions={"names-service-account": _NAMES_ACCOUNT},
        ),
        Hook(
            "usages.planform.dev",
            RECORD,
            (_USAGES,),
            fails_closed=True,
            not_our_own=True,
            conditions={"holds-elsewhere": _HOLDS_IN_ANOTHER_NAMESPACE},
        ),
    ),
)
PIPELINES: Final = Plugin(
    "pipelines", _PIPELINES, (Hook("pipelines.planform.dev", VALIDATE, _PIPELINES, fails_closed=False),)
)
ROLLOUTS: Final = Plugin(
    "rollouts",
    (_DECISIONS, _ANY_WRITE),
    (
        Hook("rolloutactions.planform.dev", RECORD, (_DECISIONS,), fails_closed=True, not_our_own=True),
        Hook(
            "adoption.planform.dev",
            RECORD,
            (_ANY_WRITE,),
            fails_closed=False,
            not_our_own=True,
            conditions={"refers-to-another-revision": _REFERS_TO_ANOTHER_REVISION},
        ),
    ),
)
USAGES: Final = Plugin(
    "usages",
    (_DELETIONS,),
    (
        Hook(
            USAGES_WEBHOOK,
            VALIDATE,
            (_DELETIONS,),
            fails_closed=True,
            labels={IN_USE_LABEL: "true"},
            has_side_effects=True,
        ),
    ),
)
BLUEPRINTS: Final = Plugin(
    "blueprints",
    (_BLUEPRINTS,),
    (
        Hook("blueprints.planform.dev", VALIDATE, (_BLUEPRINTS,), fails_closed=False),
        Hook("locks.planform.dev", BIND, (_LOCKS,), fails_closed=True, conditions={"locks-versions": _LOCKED}),
    ),
)
JOURNALS: Final = Plugin(
    "journals",
    (),
    (
        Hook(
            "journals.planform.dev",
            REVIEW,
            (Rule(JOURNAL_GROUP, ("journalreviews",), ("CREATE",)),),
            fails_closed=True,
            timeout=30,
        ),
    ),
)
PLUGINS: Final = (ESCALATION, PARAMETERS, AUTHORSHIP, PIPELINES, ROLLOUTS, USAGES, BLUEPRINTS, JOURNALS)
"""In the order in which they are asked: who may not write hears that before what is wrong with it."""

REGISTERED: Final = (USAGES, PIPELINES, BLUEPRINTS, AUTHORSHIP, ROLLOUTS, JOURNALS)
"""Those with webhooks, in the order in which they stand in their configurations: a registration that differs from the
stored one, be it in order alone, is written again by every upgrade."""


class _Asked:
    """A plugin that is asked about the writes it wants."""

    __slots__ = ("_plugin", "_rules")

    def __init__(self, plugin: AdmissionPlugin, rules: tuple[Rule, ...]) -> None:
        self._plugin, self._rules = plugin, rules

    def admit(self, admission: Admission, /) -> None:
        if any(rule.matches(admission) for rule in self._rules):
            self._plugin.admit(admission)


def chain(plugins: Mapping[Plugin, AdmissionPlugin]) -> tuple[AdmissionPlugin, ...]:
    """The embedded engine's chain. Raises KeyError if one of the plugins is missing."""
    return tuple(_Asked(plugins[each], each.rules) for each in PLUGINS if each.rules)


def asked_at(path: str, plugins: Mapping[Plugin, AdmissionPlugin]) -> Sequence[AdmissionPlugin]:
    """The plugins that answer reviews sent to this path, in the order of the chain."""
    declared = [each for each in PLUGINS if any(hook.path == path for hook in each.hooks)]
    return [plugins[each] for each in declared]


def registered_hooks(*, mutating: bool) -> list[Hook]:
    """The webhooks of one of the two configurations."""
    return [hook for each in REGISTERED for hook in each.hooks if (hook.path in MUTATING_PATHS) == mutating]


def rule_of(rule: Rule) -> dict[str, Any]:
    """A rule as a webhook configuration has it."""
    return {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "operations": list(rule.operations),
        "resources": list(rule.resources),
        "scope": "*",
    }
