"""Calling functions: the values that go in and come out, which revision runs, how it is reached, and what is cached.

values        a request and a response as plain values; protobuf exists only in the gRPC transport
runner        the Protocols: FunctionRunner, Endpoints, ResourceReader
"""
