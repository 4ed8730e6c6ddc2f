"""Packages and their revisions.

What a package is, and how it comes here:

references         how packages are named
oci                manifests, indexes and descriptors, as values
blobs              content by its digest, in a directory; images that are stored there
streams            reading archives of strangers, with memory and output bounded
extraction         unpacking layers so that nothing reaches beyond their directory
tarballs           images in files: package files, `docker save`, OCI layouts
xpkg               what an image says about itself, and the objects it brings
payloads           how its program is run, and its files as a command to start
layers, programs, building    making packages from what authors have
credentials, registry_session, transfers, registry    images from and to registries
signatures         who signed an image
image_config       rules for images, by prefix of their names

What becomes of it in a control plane:

endpoints          where a function revision says that it serves, and whether it may be called there
revisions          which revision a package makes, which are active, and which have to go
revision_objects   a revision as an object, and how it follows its package
"""
