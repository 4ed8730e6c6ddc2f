"""function-connection: composes the Secret with which an application connects to its database."""

from base64 import b64encode
from typing import Any
from urllib.parse import quote

from planform_sdk import Ready, Request, Response, function, serve


@function(deterministic=True)
def connection(req: Request[Any], rsp: Response) -> None:
    """Once the provider has made the role, its login becomes a Secret that libpq and libraries with URLs understand."""
    name = f"{req.xr.get('metadata.namespace')}_{req.xr.get('metadata.name')}"
    secret = f"{req.xr.get('metadata.name')}-connection"
    rsp.xr.set("status.database", name)
    rsp.xr.set("status.secret", secret)

    role = req.observed.resources.get("role")
    details = {key: value.decode() for key, value in role.connection_details.items()} if role is not None else {}
    if not details.get("password"):
        return
    host, port, user, password = (details[key] for key in ("endpoint", "port", "username", "password"))
    user_in_url, password_in_url, path = (quote(part, safe="") for part in (user, password, name))
    login = {
        "PGHOST": host,
        "PGPORT": port,
        "PGDATABASE": name,
        "PGUSER": user,
        "PGPASSWORD": password,
        "DATABASE_URL": f"postgresql://{user_in_url}:{password_in_url}@{host}:{port}/{path}",
    }
    rsp.desired.resources["connection"] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret},
        "data": {key: b64encode(value.encode()).decode() for key, value in login.items()},
    }
    rsp.desired.resources["connection"].ready = Ready.TRUE


if __name__ == "__main__":
    serve(connection)
