"""Go's text/template with sprig's functions, for Python.

>>> from planform.gotemplate import Template
>>> Template("{{ range .names }}{{ . | title }} {{ end }}").render({"names": ["ada", "grace"]})
'Ada Grace '

Templates see JSON-shaped data and nothing else: no attribute, no method and no module of Python is reachable.
"""

from planform.gotemplate.errors import CallFailed as FunctionError
from planform.gotemplate.errors import (
    TemplateError,
    TemplateExecutionError,
    TemplateLimitExceeded,
    TemplateSyntaxError,
)
from planform.gotemplate.functions import Function
from planform.gotemplate.runtime import Limits
from planform.gotemplate.template import Options, Template, TemplateSet
from planform.gotemplate.values import Int, NilList, NilMap, Record

__all__ = [
    "Function",
    "FunctionError",
    "Int",
    "Limits",
    "NilList",
    "NilMap",
    "Options",
    "Record",
    "Template",
    "TemplateError",
    "TemplateExecutionError",
    "TemplateLimitExceeded",
    "TemplateSet",
    "TemplateSyntaxError",
]
