"""What can go wrong with an action, each by one name.

BlueprintError
├── RegistrationRefused     a function cannot be registered as it is
├── VersionsInvalid         the versions file, or an operator's overlay, contradicts itself or the code
├── BlueprintInvalid        a Blueprint or ActionSet says what cannot be
├── PreflightFailed         what an action needs is not there; nothing of the ActionSet was started
│   ├── EngineNotSupported  the function cannot run on this engine or machine
│   └── ArtifactIncompatible  an input was made by a version that this version does not read
└── PhaseFailed             a phase ended without success
    ├── ArgumentInvalid     an argument is missing, unknown or of the wrong type
    ├── OutputInvalid       a phase gave what cannot be kept
    ├── PhaseTimedOut       a phase took longer than it may
    ├── PhaseCancelled      the ActionSet was deleted or cancelled
    └── Interrupted         the control plane stopped while the phase ran
"""

from __future__ import annotations

from collections.abc import Sequence

from planform.errors import FieldError, PlanformError


class BlueprintError(PlanformError):
    """Anything about Blueprints, ActionSets and their functions."""

    reason = "BlueprintError"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class RegistrationRefused(BlueprintError):
    """A function, or a set of its versions, cannot be registered; nothing of it was."""

    reason = "RegistrationRefused"


class VersionsInvalid(BlueprintError):
    """The versions file does not hold together. `problems` are all that were found."""

    reason = "VersionsInvalid"

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{source}: {'; '.join(problems)}")


class BlueprintInvalid(BlueprintError):
    """A Blueprint or an ActionSet says what cannot be; one error for each field."""

    reason = "BlueprintInvalid"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(str(error) for error in errors))


class PreflightFailed(BlueprintError):
    """What an action needs is not there. Nothing of the ActionSet was started."""

    reason = "PreflightFailed"


class EngineNotSupported(PreflightFailed):
    """The version of the function that would run cannot run here."""

    reason = "EngineNotSupported"


class ArtifactIncompatible(PreflightFailed):
    """An input artifact was made by a version whose data this version does not read."""

    reason = "ArtifactIncompatible"


class PhaseFailed(BlueprintError):
    """A phase ended without success. `details` are facts for programs, told as JSON after the message."""

    reason = "PhaseFailed"

    def __init__(self, message: str, *, details: object = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.details = details


class ArgumentInvalid(PhaseFailed):
    """An argument is missing, unknown or not what the function takes."""

    reason = "ArgumentInvalid"


class OutputInvalid(PhaseFailed):
    """What a phase gave cannot be kept: it is not JSON, or too much."""

    reason = "OutputInvalid"


class PhaseTimedOut(PhaseFailed):
    """The phase took longer than its timeout."""

    reason = "PhaseTimedOut"


class PhaseCancelled(PhaseFailed):
    """Somebody deleted or cancelled the ActionSet while the phase ran."""

    reason = "Cancelled"


class Interrupted(PhaseFailed):
    """The control plane stopped while the phase ran, and the function does not say that it can be run again."""

    reason = "Interrupted"
