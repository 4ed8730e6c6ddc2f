"""Two functions that no registry has here, made from their documented behaviour, with Crossplane's SDK for Python.

function-dummy answers with the response in its input, merged over what earlier steps desire. function-python runs
`compose` or `operate` of the script in its input. Which of them to be is the first word of the command line.
"""

from __future__ import annotations

import argparse
import inspect
import logging as _logging
from importlib import import_module
from typing import Any

from google.protobuf import json_format

fnv1: Any = import_module("crossplane.function.proto.v1.run_function_pb2")
grpcv1: Any = import_module("crossplane.function.proto.v1.run_function_pb2_grpc")
response: Any = import_module("crossplane.function.response")
runtime: Any = import_module("crossplane.function.runtime")


class Dummy(grpcv1.FunctionRunnerServiceServicer):  # type: ignore[misc]  # generated code has no types
    async def RunFunction(self, request: Any, _: Any) -> Any:
        answer = response.to(request)
        given = json_format.MessageToDict(request.input).get("response") or {}
        try:
            answer.MergeFrom(json_format.ParseDict(given, fnv1.RunFunctionResponse()))
        except json_format.ParseError as error:
            response.fatal(answer, f"the input holds no RunFunctionResponse: {error}")
        return answer


class Python(grpcv1.FunctionRunnerServiceServicer):  # type: ignore[misc]
    async def RunFunction(self, request: Any, _: Any) -> Any:
        answer = response.to(request)
        script: dict[str, Any] = {"__name__": "script"}
        exec(compile(str(request.input["script"]), "script", "exec"), script)
        entries = [script[name] for name in ("compose", "operate") if callable(script.get(name))]
        if len(entries) != 1:
            response.fatal(answer, "the script must have one function, compose or operate")
        for entry in entries:
            done = entry(request, answer)
            if inspect.isawaitable(done):
                await done
        return answer


FUNCTIONS = {"dummy": Dummy, "python": Python}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("--address", default="127.0.0.1:9443")
    parser.add_argument("--tls-certs-dir")
    flags, _ = parser.parse_known_args()
    _logging.basicConfig(level=_logging.INFO)
    credentials = runtime.load_credentials(flags.tls_certs_dir)
    runtime.serve(FUNCTIONS[flags.function](), flags.address, creds=credentials, insecure=False)


if __name__ == "__main__":
    main()
