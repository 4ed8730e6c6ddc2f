"""Calling functions: the values that go in and come out, which revision runs, how it is reached, and what is cached.

values           a request and a response as plain values; protobuf exists only in the gRPC transport
runner           the Protocols: FunctionRunner, ResourceReader, CredentialSource, built-in functions
errors           what can go wrong on the way, each with a name
resolution       which revision of a function runs: one pure decision for steps, phases and operations
sending          what a function is sent, and the tag that names a request
calling, cache   one call, from the cache if it knows the answer
requirements     calls until a function asks for nothing new; read_policy says what it may ask for
endpoints        where a revision serves
inprocess        the transport for functions we ship
wire, grpc_transport   the transport for all others
routing          one runner over both
"""
