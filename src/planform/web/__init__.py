"""The dashboard's server side: an API for the page that filters, pages and masks, and one stream of what changes.

It asks the control plane as its user, with that user's own identity, and keeps nothing but what it is told while
somebody looks. `planform dashboard` serves it on loopback, `planform up` below `/ui/`.
"""
