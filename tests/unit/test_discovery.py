"""Discovery documents, as kubectl, helm and the Python clients read them."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import Kind
from planform.apiserver.wire import discovery

WIDGET = Kind(
    "example.org",
    "v1",
    "Widget",
    "widgets",
    True,
    short_names=("wd",),
    categories=("all",),
    subresources=("status", "scale"),
)
OLD_WIDGET = Kind("example.org", "v1beta1", "Widget", "widgets", True)
GADGET = Kind("example.org", "v2", "Gadget", "gadgets", False)
KINDS = (*BUILTIN_KINDS, OLD_WIDGET, WIDGET, GADGET)


def row(document: Any, name: str) -> Any:
    assert document is not None
    return next(resource for resource in document["resources"] if resource["name"] == name)


def test_versions_are_ordered_stable_first_then_higher_first() -> None:
    mixed = ["v1alpha1", "v1", "v10", "v2beta1", "v2", "v1beta2", "v1beta10", "v11alpha2", "odd", "even", "v1"]
    assert discovery.by_preference(mixed) == (
        ["v10", "v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v11alpha2", "v1alpha1", "even", "odd"]
    )


def test_api_names_the_core_versions_and_the_address() -> None:
    assert discovery.core_versions(KINDS, server_address="127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }


def test_apis_lists_every_named_group_with_its_preferred_version_first() -> None:
    document = discovery.group_list(KINDS)
    names = [group["name"] for group in document["groups"]]
    assert names == list(dict.fromkeys(kind.group for kind in KINDS if kind.group))
    assert document["groups"][-1] == {
        "name": "example.org",
        "versions": [
            {"groupVersion": "example.org/v2", "version": "v2"},
            {"groupVersion": "example.org/v1", "version": "v1"},
            {"groupVersion": "example.org/v1beta1", "version": "v1beta1"},
        ],
        "preferredVersion": {"groupVersion": "example.org/v2", "version": "v2"},
    }


def test_one_group_has_the_same_fields_as_in_the_list() -> None:
    listed = discovery.group_list(KINDS)["groups"][-1]
    assert discovery.group(KINDS, "example.org") == {"kind": "APIGroup", "apiVersion": "v1", **listed}


@pytest.mark.parametrize("name", ["", "example.com"])
def test_a_group_that_is_not_served_has_no_document(name: str) -> None:
    assert discovery.group(KINDS, name) is None
    assert discovery.resource_list(KINDS, name, "v9") is None


def test_a_version_lists_kinds_and_their_subresources() -> None:
    document = discovery.resource_list(KINDS, "example.org", "v1")
    assert document == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "example.org/v1",
        "resources": [
            {
                "name": "widgets",
                "singularName": "widget",
                "namespaced": True,
                "kind": "Widget",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["wd"],
                "categories": ["all"],
            },
            {
                "name": "widgets/scale",
                "singularName": "",
                "namespaced": True,
                "kind": "Scale",
                "verbs": ["get", "patch", "update"],
                "group": "autoscaling",
                "version": "v1",
            },
            {
                "name": "widgets/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Widget",
                "verbs": ["get", "patch", "update"],
            },
        ],
    }


def test_the_core_version_names_tokens_and_finalizing_by_what_they_take() -> None:
    document = discovery.resource_list(KINDS, "", "v1")
    token = row(document, "serviceaccounts/token")
    assert (token["group"], token["version"], token["kind"]) == ("authentication.k8s.io", "v1", "TokenRequest")
    assert token["verbs"] == ["create"]
    assert row(document, "namespaces/finalize")["verbs"] == ["update"]
    assert row(document, "configmaps")["shortNames"] == ["cm"]
    assert "categories" not in row(document, "configmaps")


def test_reviews_are_listed_as_create_only() -> None:
    document = discovery.resource_list(KINDS, "authorization.k8s.io", "v1")
    assert document is not None
    assert {tuple(resource["verbs"]) for resource in document["resources"]} == {("create",)}


def test_aggregated_core_discovery_has_one_group_without_a_name() -> None:
    document = discovery.aggregated(KINDS, core=True)
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2"
    [core] = document["items"]
    assert core["metadata"] == {}
    assert [version["version"] for version in core["versions"]] == ["v1"]
    resources = core["versions"][0]["resources"]
    assert [resource["resource"] for resource in resources] == sorted(
        kind.plural for kind in BUILTIN_KINDS if not kind.group
    )


def test_aggregated_discovery_of_named_groups_tells_the_same_as_the_lists() -> None:
    document = discovery.aggregated(KINDS, core=False)
    assert [item["metadata"]["name"] for item in document["items"]] == (
        [group["name"] for group in discovery.group_list(KINDS)["groups"]]
    )
    for item in document["items"]:
        for version in item["versions"]:
            listed = discovery.resource_list(KINDS, item["metadata"]["name"], version["version"])
            assert listed is not None
            told = [
                name
                for resource in version["resources"]
                for name in (
                    resource["resource"],
                    *(f"{resource['resource']}/{sub['subresource']}" for sub in resource.get("subresources", ())),
                )
            ]
            assert told == [resource["name"] for resource in listed["resources"]]


def test_an_aggregated_custom_kind_has_scope_kind_and_subresources() -> None:
    versions = discovery.aggregated(KINDS, core=False, version="v2beta1")["items"][-1]["versions"]
    assert [version["version"] for version in versions] == ["v2", "v1", "v1beta1"]
    assert {version["freshness"] for version in versions} == {"Current"}
    assert versions[0]["resources"][0]["scope"] == "Cluster"
    assert versions[1]["resources"] == [
        {
            "resource": "widgets",
            "responseKind": {"group": "example.org", "version": "v1", "kind": "Widget"},
            "scope": "Namespaced",
            "singularResource": "widget",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["wd"],
            "categories": ["all"],
            "subresources": [
                {
                    "subresource": "scale",
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                    "verbs": ["get", "patch", "update"],
                },
                {
                    "subresource": "status",
                    "responseKind": {"group": "example.org", "version": "v1", "kind": "Widget"},
                    "verbs": ["get", "patch", "update"],
                },
            ],
        }
    ]


def test_kinds_that_the_engine_does_not_run_are_not_listed() -> None:
    groups = {group["name"] for group in discovery.group_list(BUILTIN_KINDS)["groups"]}
    assert not groups & {"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}


def test_the_root_lists_paths_that_lead_on() -> None:
    paths = discovery.root_paths(KINDS)["paths"]
    assert {"/api", "/api/v1", "/apis", "/apis/example.org", "/apis/example.org/v1", "/openapi/v3"} <= set(paths)
    assert paths == sorted(paths)


def test_the_etag_follows_the_content_and_nothing_else() -> None:
    body, etag = discovery.encode(discovery.group_list(KINDS))
    assert body.endswith(b"}\n")
    assert etag.startswith('"') and etag.endswith('"')
    assert discovery.encode(discovery.group_list(KINDS)) == (body, etag)
    assert discovery.encode(discovery.group_list(KINDS[:-1]))[1] != etag
