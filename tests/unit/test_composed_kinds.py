"""Which kinds Compositions may compose, and what `--tenants` means."""

from __future__ import annotations

import pytest

from planform.api.kinds import GroupVersionKind
from planform.cli.control_plane.feature_gates import gates_of
from planform.cli.control_plane.sandbox_options import function_network_of
from planform.errors import UsageError
from planform.xrs.composed_kinds import ComposedKindDenied, parse_composed_kinds

ROLE_BINDING = GroupVersionKind("rbac.authorization.k8s.io", "v1", "RoleBinding")
SECRET = GroupVersionKind("", "v1", "Secret")


@pytest.mark.parametrize(
    ("allow", "deny", "kind", "passes"),
    [
        ([], [], ROLE_BINDING, True),
        ([], ["*.rbac.authorization.k8s.io"], ROLE_BINDING, False),
        ([], ["RoleBinding.*"], ROLE_BINDING, False),
        ([], ["Secret,ConfigMap"], SECRET, False),
        ([], ["*.rbac.authorization.k8s.io"], SECRET, True),
        (["Secret"], [], SECRET, True),
        (["Secret"], [], ROLE_BINDING, False),
        (["*"], ["Secret"], SECRET, False),
        (["*"], [], ROLE_BINDING, True),
        (["Secret.example.org"], [], SECRET, False),
    ],
)
def test_lists_decide_what_may_be_composed(
    allow: list[str], deny: list[str], kind: GroupVersionKind, passes: bool
) -> None:
    kinds = parse_composed_kinds(allow, deny)
    if passes:
        kinds.check(kind)
    else:
        with pytest.raises(ComposedKindDenied, match=kind.kind):
            kinds.check(kind)


@pytest.mark.parametrize("pattern", ["secrets.", "v1/Secret", "Secret.a b", "-"])
def test_a_pattern_that_names_no_kinds_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        parse_composed_kinds([pattern], [])


def test_tenants_switches_gates_on_and_a_word_about_a_gate_counts_more() -> None:
    gates = gates_of({"tenants": True, "feature_gates": ()})
    assert gates.enabled("ConfineNamespacedReads") and gates.enabled("DenyExtraResourcesByDefault")
    gates = gates_of({"tenants": True, "feature_gates": ("DenyExtraResourcesByDefault=false",)})
    assert gates.enabled("ConfineNamespacedReads") and not gates.enabled("DenyExtraResourcesByDefault")
    assert function_network_of({"tenants": True, "function_network": None}) == "none"
    assert function_network_of({"tenants": True, "function_network": "host"}) == "host"
    assert function_network_of({"tenants": False, "function_network": None}) == "host"
    assert not gates_of({"tenants": False, "feature_gates": ()}).enabled("ConfineNamespacedReads")


def test_the_flag_of_the_design_turns_extra_resources_off() -> None:
    assert gates_of({"feature_gates": ()}).enabled("CompositionFunctionsExtraResources")
    gates = gates_of({"feature_gates": (), "enable_composition_functions_extra_resources": False})
    assert not gates.enabled("CompositionFunctionsExtraResources")
