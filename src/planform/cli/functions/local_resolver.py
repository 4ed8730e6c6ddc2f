"""Which local function a step means: the rules of a control plane, where files stand for what it would have.

A Function's document gives its labels, as its revisions would get them; a function that no document describes stands
for every revision of its name. Hints speak of files and options: nothing can be installed here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.builtin.catalogue import list_builtins
from planform.cli.functions.local import LocalFunction, catalogue_of
from planform.functions.errors import FunctionNotFound, ResolutionError
from planform.functions.resolution import Request, Resolution, resolve
from planform.pipeline.modes import pipeline_of
from planform.pipeline.pipeline import StepResolver
from planform.pipeline.steps import Step

OPTION = "--function {name}=FILE.py, =FILE.xpkg or =HOST:PORT"
"""How the command line says where a function is."""
FIELD = "`function: {{{name}: FILE.py}}` in the test"
"""How a test says it."""


def local_resolver(functions: Iterable[LocalFunction], *, how: str = OPTION) -> StepResolver:
    """Resolve steps to these functions; `how` is where a user says which there are."""
    known = list({function.id: function for function in functions}.values())
    catalogue = catalogue_of(known)

    def resolve_step(step: Step) -> Resolution:
        candidates = [function for function in known if function.name == step.function]
        ref, selector = step.revision_ref, step.revision_selector
        if _stands_for_name(candidates):
            ref = ""
        if _stands_for_labels(candidates):
            selector = None
        try:
            return resolve(catalogue, Request(step.function, "composition", ref=ref, selector=selector))
        except ResolutionError as error:
            error.hint = _hint(error, step, known, how)
            raise

    return resolve_step


def unlabelled_notes(compositions: Sequence[Object], functions: Iterable[LocalFunction]) -> list[str]:
    """What to say once: the functions that are taken for revisions which some step selects."""
    found = {}
    known = list({function.id: function for function in functions}.values())
    for composition in compositions:
        for step in pipeline_of(composition["spec"], name_of(composition)):
            name = str((step.get("functionRef") or {}).get("name"))
            candidates = [function for function in known if function.name == name]
            by_name = "functionRevisionRef" in step and _stands_for_name(candidates)
            by_labels = "functionRevisionSelector" in step and _stands_for_labels(candidates)
            if by_name or by_labels:
                found[name] = (
                    f'function "{name}" stands for every revision of its name: '
                    "a FunctionRevision or Function with labels, in a file, would say which it is"
                )
    return list(found.values())


def _stands_for_name(candidates: Sequence[LocalFunction]) -> bool:
    """The name of a revision follows from a package that is not here, unless a document says it."""
    return bool(candidates) and not any(function.revision for function in candidates)


def _stands_for_labels(candidates: Sequence[LocalFunction]) -> bool:
    return bool(candidates) and all(function.any_revision for function in candidates)


def _hint(error: ResolutionError, step: Step, known: Sequence[LocalFunction], how: str) -> str:
    if isinstance(error, FunctionNotFound):
        where = how.format(name=step.function)
        names = {function.name for function in known} | {f"function-{builtin.name}" for builtin in list_builtins()}
        short = {name.removeprefix("function-"): name for name in names}  # or all would be near to each other
        close = difflib.get_close_matches(step.function.removeprefix("function-"), short, n=1)
        return (f'did you mean "{short[close[0]]}"? Or ' if close else "") + f"say where it is: {where}"
    if step.revision_selector is not None and not step.revision_ref:
        labels = ", ".join(f"{key}: {value}" for key, value in sorted(step.revision_selector.items()))
        return (
            f"give the Function in your files metadata.labels {{{labels}}}; without a document it stands for them all"
        )
    return "add a FunctionRevision of that name to your files; without any, the function stands for them all"
