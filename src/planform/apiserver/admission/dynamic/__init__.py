"""Admission that users configure: webhooks and validating policies, asked about writes before they are staged.

`configurations` are the rules of the four kinds of `admissionregistration.k8s.io`; `matching` says which writes one is
about; `reviews` are the words a webhook is asked in and answers with; `webhooks` and `policies` do the asking, and
`dispatch` keeps what is configured and is what the verbs call.
"""
