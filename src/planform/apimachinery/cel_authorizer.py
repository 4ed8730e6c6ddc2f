"""The `authorizer` of admission expressions: questions about what a user may do, asked step by step.

`authorizer.group('apps').resource('deployments').namespace('x').check('create').allowed()` walks from a builder to a
decision. Whoever evaluates the expression gives the first builder, with a function that answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planform.apimachinery.cel_functions import declare
from planform.apimachinery.cel_values import EvaluationError, enter_type


@dataclass(frozen=True, slots=True)
class Question:
    """One access that an expression asks about, for the user of the request or for a service account."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    account: tuple[str, str] | None = None
    """Namespace and name of the service account that is meant; None for the user of the request."""


Answer = Callable[[Question], bool]


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The first builder. `request_resource` is a check of what the request itself is about."""

    answer: Answer
    account: tuple[str, str] | None = None
    request_resource: ResourceCheck | None = None

    def get(self, key: str) -> ResourceCheck | None:
        """Its one field, `requestResource`."""
        return self.request_resource


@dataclass(frozen=True, slots=True)
class PathCheck:
    answer: Answer
    question: Question


@dataclass(frozen=True, slots=True)
class GroupCheck:
    answer: Answer
    question: Question


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    answer: Answer
    question: Question


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool


for _type, _name in (
    (Authorizer, "authorizer"),
    (PathCheck, "pathcheck"),
    (GroupCheck, "groupcheck"),
    (ResourceCheck, "resourcecheck"),
    (Decision, "decision"),
):
    enter_type(_type, _name)


@declare("authorizer.path(string): pathcheck")
def path(asker: Authorizer, text: str) -> PathCheck:
    if not text:
        raise EvaluationError("path must not be empty")
    return PathCheck(asker.answer, Question(path=text, account=asker.account))


@declare("authorizer.group(string): groupcheck")
def group(asker: Authorizer, text: str) -> GroupCheck:
    return GroupCheck(asker.answer, Question(group=text, account=asker.account))


@declare("authorizer.serviceAccount(string, string): authorizer")
def service_account(asker: Authorizer, namespace: str, name: str) -> Authorizer:
    return Authorizer(asker.answer, (namespace, name))


@declare("groupcheck.resource(string): resourcecheck")
def resource(check: GroupCheck, text: str) -> ResourceCheck:
    return ResourceCheck(check.answer, replace(check.question, resource=text))


@declare("resourcecheck.subresource(string): resourcecheck")
def subresource(check: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(check.answer, replace(check.question, subresource=text))


@declare("resourcecheck.namespace(string): resourcecheck")
def namespace(check: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(check.answer, replace(check.question, namespace=text))


@declare("resourcecheck.name(string): resourcecheck")
def name(check: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(check.answer, replace(check.question, name=text))


@declare("resourcecheck.fieldSelector(string): resourcecheck", "resourcecheck.labelSelector(string): resourcecheck")
def selector(check: ResourceCheck, text: str) -> ResourceCheck:
    """RBAC does not look at selectors."""
    return check


_COSTLY = 1_000
"""What one check costs an expression: an answer is looked up in memory, whatever Kubernetes reckons for it."""


@declare("pathcheck.check(string): decision", "resourcecheck.check(string): decision", cost=lambda _: _COSTLY)
def check(asked: PathCheck | ResourceCheck, verb: str) -> Decision:
    return Decision(asked.answer(replace(asked.question, verb=verb)))


declare("decision.allowed(): bool")(lambda decision: decision.allowed)
declare("decision.reason(): string")(lambda _: "")
declare("decision.errored(): bool")(lambda _: False)
declare("decision.error(): string")(lambda _: "")
