"""The embedded engine: a Kubernetes-compatible API over the store, in this process or over HTTPS.

requests        who asks and with which options
registry        which kinds are served, and everything compiled for each of them
strategies      what single built-in kinds do differently
crds            how a CustomResourceDefinition becomes served kinds
core            the parts every verb needs, handed down as one value
identity        whether an object is what its request says it is
staging         how what a write decided gets into the store
reads, writes, applies, deletes, subresources    the verbs
local           LocalClient: the verbs as a Client, without a wire
http, routes, handler, ...              the same verbs on the wire
"""
