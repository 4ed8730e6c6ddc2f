"""A whole control plane as an archive, from one engine to the other and back.

What a control plane is consists of objects: definitions, Compositions with their numbered revisions, XRs, claims, what
they are composed of, Secrets and packages, and who of them owns whom. `exporting` reads them from any engine, `archive`
keeps them as files, and `importing` puts them into another engine, where every object gets a new uid and everything
that refers to one follows. No controller may run meanwhile; afterwards it finds everything as it left it.
"""
