"""Go's text/template with sprig's functions, for Python.

>>> from planform.gotemplate import Template
>>> Template("{{ range .names }}{{ . | title }} {{ end }}").render({"names": ["ada", "grace"]})
'Ada Grace '

Templates see JSON-shaped data and nothing else: no attribute, no method and no module of Python is reachable. The
engine is loaded when one of these names is first used, since others need only its printing of numbers and durations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "Function": "functions",
    "FunctionError": "errors",
    "Int": "values",
    "Limits": "runtime",
    "NilList": "values",
    "NilMap": "values",
    "Options": "template",
    "Record": "values",
    "Template": "template",
    "TemplateError": "errors",
    "TemplateExecutionError": "errors",
    "TemplateLimitExceeded": "errors",
    "TemplateSet": "template",
    "TemplateSyntaxError": "errors",
}

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{home}")
    return getattr(module, "CallFailed" if name == "FunctionError" else name)
