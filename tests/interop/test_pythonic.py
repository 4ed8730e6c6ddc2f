"""A function of others, in Python on Crossplane's SDK, called by our runner in plain text and with mutual TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planform.functions.values import FunctionRequest, Ready, Resource, Severity, State
from tests.interop.published import serving

SCRIPT = """
class VpcComposite(BaseComposite):
  def compose(self):
    vpc = self.resources.vpc('ec2.example.org/v1', 'VPC')
    vpc.spec.region = self.spec.region
    vpc.spec.cidrBlock = self.spec.cidr
    self.status.vpcId = vpc.status.atProvider.vpcId
"""


def request(script: str = SCRIPT) -> FunctionRequest:
    xr = {
        "apiVersion": "example.org/v1",
        "kind": "XNetwork",
        "metadata": {"name": "main"},
        "spec": {"region": "eu", "cidr": "10.0.0.0/16"},
    }
    vpc = {
        "apiVersion": "ec2.example.org/v1",
        "kind": "VPC",
        "metadata": {"name": "main-vpc"},
        "status": {
            "atProvider": {"vpcId": "vpc-1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    given = {"apiVersion": "pythonic.fn.fortra.com/v1alpha1", "kind": "Composite", "composite": script}
    return FunctionRequest(observed=State(Resource(xr), {"vpc": Resource(vpc)}), input=given, tag="t")


@pytest.mark.parametrize("secure", [False, True], ids=["insecure", "mutual TLS"])
async def test_it_composes_for_us_as_it_does_for_crossplane(
    secure: bool, tmp_path: Path, issue: Callable[[str], Path]
) -> None:
    certificates = issue("function") if secure else None
    async with serving("function-pythonic", tmp_path, certificates) as pythonic:
        response = await pythonic(request())
    assert response.fatal is None
    vpc = response.desired.resources["vpc"]
    assert vpc.resource["spec"] == {"region": "eu", "cidrBlock": "10.0.0.0/16"}
    assert vpc.ready is Ready.TRUE
    assert response.desired.composite.resource["status"] == {"vpcId": "vpc-1"}
    assert response.tag == "t"


async def test_what_it_cannot_do_is_a_fatal_result_of_its_own(tmp_path: Path) -> None:
    async with serving("function-pythonic", tmp_path) as pythonic:
        response = await pythonic(
            request("class Broken(BaseComposite):\n  def compose(self):\n    raise ValueError('no')\n")
        )
    assert [result.severity for result in response.results] == [Severity.FATAL]
