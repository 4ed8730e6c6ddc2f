"""Configurations that a provider package brings point at where the provider serves."""

from __future__ import annotations

import base64

from planform.api.kinds import Object
from planform.packages.runtimes.deployments import Deployed, objects_of
from planform.packages.webhooks import WebhookService, pointed_at

SERVICE = WebhookService("nop", "crossplane-system", "nop", 9443, b"an authority")
BUNDLE = base64.b64encode(b"an authority").decode()


def configuration(kind: str, path: str = "/validate") -> Object:
    placeholder = {"name": "webhook-service", "namespace": "system", "path": path}
    hook = {"name": "a.example.org", "failurePolicy": "Fail", "clientConfig": {"service": placeholder}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "validating-webhook-configuration"},
        "webhooks": [hook, {"name": "b.example.org"}],
    }


def definition(**conversion: object) -> Object:
    spec: Object = {"group": "example.org", "names": {"plural": "things"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {**spec, "conversion": conversion} if conversion else spec,
    }


def test_configurations_get_the_name_service_and_authority_of_their_provider() -> None:
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        [made] = pointed_at(SERVICE, [configuration(kind)], "Provider")
        assert made["metadata"]["name"] == "crossplane-provider-nop"
        first, second = made["webhooks"]
        service = {"name": "nop", "namespace": "crossplane-system", "port": 9443}
        assert first["clientConfig"] == {"service": {**service, "path": "/validate"}, "caBundle": BUNDLE}
        assert first["failurePolicy"] == "Fail"
        assert second["clientConfig"] == {"service": service, "caBundle": BUNDLE}


def test_a_second_configuration_of_a_kind_has_a_name_of_its_own() -> None:
    twice = [configuration("ValidatingWebhookConfiguration"), configuration("ValidatingWebhookConfiguration", "/x")]
    names = [each["metadata"]["name"] for each in pointed_at(SERVICE, twice, "Provider")]
    assert names == ["crossplane-provider-nop", "crossplane-provider-nop-validating-webhook-configuration"]


def test_only_definitions_that_a_webhook_converts_are_changed() -> None:
    converted = definition(strategy="Webhook", webhook={"clientConfig": {"service": {"path": "/convert"}}})
    plain, none, made = pointed_at(SERVICE, [definition(), definition(strategy="None"), converted], "Provider")
    assert (plain, none) == (definition(), definition(strategy="None"))
    webhook = made["spec"]["conversion"]["webhook"]
    assert webhook["conversionReviewVersions"] == ["v1"]
    assert webhook["clientConfig"]["service"]["path"] == "/convert"
    assert (webhook["clientConfig"]["service"]["port"], webhook["clientConfig"]["caBundle"]) == (9443, BUNDLE)


def test_where_nobody_runs_the_provider_its_configurations_are_left_out() -> None:
    objects = [configuration("ValidatingWebhookConfiguration"), definition(strategy="Webhook")]
    assert list(pointed_at(None, objects, "Provider")) == [definition(strategy="Webhook")]


def test_in_a_cluster_the_service_of_a_provider_has_an_address_that_api_servers_can_call() -> None:
    owner = {"apiVersion": "pkg.crossplane.io/v1", "kind": "ProviderRevision", "name": "nop-1", "uid": "u"}
    for provider in (True, False):
        wanted = Deployed("nop", "nop-1", "u", "image", owner, owner, provider)
        objects = objects_of(wanted, "crossplane-system", certificate="1", drain_seconds=1)
        [service] = [each for each in objects if each["kind"] == "Service"]
        assert service["spec"].get("clusterIP") == (None if provider else "None")
        assert [port["port"] for port in service["spec"]["ports"]] == [9443]
    assert "nop-1.crossplane-system.svc" in wanted.server_names("crossplane-system")
