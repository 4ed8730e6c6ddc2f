"""Packages and their revisions.

endpoints          where a function revision says that it serves, and whether it may be called there
revisions          which revision a package makes, which are active, and which have to go
revision_objects   a revision as an object, and how it follows its package
"""
