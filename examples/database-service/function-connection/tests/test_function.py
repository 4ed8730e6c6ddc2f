"""Run with `python -m pytest`."""

from base64 import b64decode

from function import connection

from planform_sdk import Resource
from planform_sdk.testing import assert_xr, run

XR = {"metadata": {"name": "shop", "namespace": "blue"}}
LOGIN = {"endpoint": b"db.example.org", "port": b"5432", "username": b"blue_shop", "password": b"a/b"}


def test_a_role_without_a_password_has_no_secret_yet() -> None:
    response = run(connection, xr=XR, observed={"role": Resource({"kind": "Role"})})
    assert_xr(response, {"status": {"database": "blue_shop", "secret": "shop-connection"}})
    assert "connection" not in response.desired.resources


def test_the_login_of_the_role_becomes_a_url() -> None:
    role = Resource({"kind": "Role"}, connection_details=LOGIN)
    made = run(connection, xr=XR, observed={"role": role}).desired.resources["connection"].resource
    assert b64decode(made["data"]["DATABASE_URL"]) == b"postgresql://blue_shop:a%2Fb@db.example.org:5432/blue_shop"
