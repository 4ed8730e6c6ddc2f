"""Write composition functions in Python: for planform and for Crossplane.

    from planform_sdk import Request, Response, function

    @function
    def hello(req: Request, rsp: Response) -> None:
        rsp.xr.set("status.greeting", f"Hello, {req.xr.get('spec.name')}")

Serve it with `python -m planform_sdk serve module:hello`; test it with `planform_sdk.testing`. Nothing heavy is
imported before it is needed: gRPC when serving, protobuf when bytes are read or written.
"""

from planform_sdk.functions import Fatal, Function, function
from planform_sdk.request import Request
from planform_sdk.response import Response
from planform_sdk.types import (
    Capability,
    Ready,
    Resource,
    RunFunctionRequest,
    RunFunctionResponse,
    Severity,
    State,
    Status,
    Target,
)

__all__ = [
    "Capability",
    "Fatal",
    "Function",
    "Ready",
    "Request",
    "Resource",
    "Response",
    "RunFunctionRequest",
    "RunFunctionResponse",
    "Severity",
    "State",
    "Status",
    "Target",
    "function",
    "serve",
]


def serve(function: Function) -> None:
    """Serve a function as the command line of this process says. Call it under `if __name__ == "__main__"`."""
    from planform_sdk.__main__ import serve as serve_with_options

    serve_with_options(function)
