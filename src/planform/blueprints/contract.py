"""What a phase function is, and what it is given when it runs.

    from planform.blueprints.arguments import Arguments

    @phase_function("Greet", required=["name"], arguments=["shout"])
    async def greet(context: PhaseContext, args: Arguments) -> Output:
        context.progress(50)
        return {"greeting": f"hello {args.text('name')}"}

    @phase_function("Greet", version="v0.1.0", stable=True, required=["name"], arguments=["language"])
    class Greet:                      # made anew for every phase, so that it may keep things on itself
        async def __call__(self, context: PhaseContext, args: Arguments) -> Output: ...

The decorator only describes: nothing is registered until somebody gives the function, or the module it stands in, to
a `PhaseFunctionRegistry`. Without a version it is `v0.0.0`, the version of everything that nobody versioned.

A function may be `async`, and is then cancelled as tasks are; or a plain function, which runs in a thread and looks at
`context.cancelled` where it can. What it returns is a map of JSON values, the phase's output; None and an empty map
are none. It fails by raising: a `PhaseFailed` says what its users should read, anything else is told with its type.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from planform.api.authors import Author
from planform.client.kubeconfig import Connection
from planform.client.protocol import Client
from planform.clock import Clock

Engine = Literal["embedded", "kubernetes"]
Output = Mapping[str, Any] | None
Implementation = Callable[..., Any]
"""`(context, args) -> Output`, or an awaitable of it; or a class whose instances are that."""

UNVERSIONED: Final = "v0.0.0"
ENGINES: Final[tuple[Engine, ...]] = ("embedded", "kubernetes")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class ContainerTask:
    """A command to run in an image, to its end."""

    image: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[Path, str] = field(default_factory=dict)
    """Directories of ours, and where the container sees them."""
    memory: int = 512 << 20
    seconds: float = 3600.0


class ContainerTasks(Protocol):
    """Runs containers without Kubernetes; there may be none on a machine."""

    async def run(self, task: ContainerTask, output: Callable[[bytes], None], /) -> int:
        """The exit code. `output` gets what the command prints, as it comes; cancelling ends the container."""
        ...


@dataclass(frozen=True, kw_only=True)
class PhaseEnvironment:
    """Where phases run, the same for all of them."""

    engine: Engine = "embedded"
    data: Path | None = None
    """A directory of the control plane's own, where functions may keep files below their function's name."""
    connection: Connection | None = None
    """How to reach the cluster for what `Client` does not do, such as exec streams; None on the embedded engine."""
    containers: ContainerTasks | None = None
    unconfined: frozenset[str] = frozenset()
    """Namespaces whose tasks the operator lets run as processes that see this machine's files; by default none."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a phase is; None leaves what was said before. Sizes are bytes."""

    percent: int | None = None
    uploaded: int | None = None
    downloaded: int | None = None
    upload_total: int | None = None
    download_total: int | None = None
    seconds_left: int | None = None


Renderer = Callable[..., Any]
"""`(value, *, data=None, missing_key="error") -> value`: see `PhaseContext.render`."""


@dataclass(kw_only=True)
class PhaseContext:
    """One run of one phase: what the function may use, and how it tells what it does.

    `params` are the roots that templates see (`params["Object"]`, `params["Profile"]`, `params["Options"]`, ...), with
    the same names and in the same shape. They are shared by the phases of an action: look, do not change.
    """

    client: Client
    clock: Clock
    author: Author | None = None
    """With whose rights `client` asks; None with the control plane's own, for an administrator's ActionSet."""
    here: PhaseEnvironment = field(default_factory=PhaseEnvironment)
    function: str = ""
    version: str = UNVERSIONED
    actionset: str = ""
    namespace: str = ""
    uid: str = ""
    """Of the ActionSet: the same for every attempt, and after a restart. With action and phase it names this run."""
    action: str = ""
    action_index: int = 0
    phase: str = ""
    attempt: int = 1
    resumed: bool = False
    """The control plane stopped while this phase ran, and it is run again; only for functions that are resumable."""
    deferred: bool = False
    """Whether this is an action's deferPhase."""
    params: Mapping[str, Any] = field(default_factory=dict)
    renderer: Renderer | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_log: Callable[[str], None] | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def cancelled(self) -> bool:
        """Whether the phase shall end, for functions that run in a thread; others get a CancelledError."""
        return self.stop.is_set()

    def progress(self, percent: float | None = None, **more: int) -> None:
        """Tell how far the phase is; cheap, and safe from any thread. `more` are the fields of `Progress`."""
        if self.on_progress is not None:
            bounded = None if percent is None else max(0, min(100, int(percent)))
            self.on_progress(Progress(percent=bounded, **more))

    def log(self, text: str) -> None:
        """Tell a line of what the phase does; `planform actionset logs` shows it. Safe from any thread."""
        if self.on_log is not None:
            self.on_log(text)

    def render(self, value: Any, *, data: Any = None, missing_key: str = "error") -> Any:
        """Render templates in a value, as arguments are: over the action's parameters, or over `data`.

        For versions that render themselves, whose arguments come as they were written. Raises TemplateError.
        """
        if self.renderer is None:
            raise RuntimeError("this context was made without a renderer")
        return self.renderer(value, data=data, missing_key=missing_key)


@dataclass(frozen=True, kw_only=True)
class PhaseFunction:
    """One version of one function: what it is called, what it takes, and what runs."""

    name: str
    run: Implementation
    version: str = UNVERSIONED
    stable: bool = False
    """Whether its author means this version to be the default; for names in the versions file, the file says so too."""
    required: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None
    """The optional arguments; None takes any, as functions do that never said what they take."""
    engines: tuple[Engine, ...] = ENGINES
    renders_itself: bool = False
    """Whether it gets its arguments as they were written, and renders them with `context.render`."""
    resumable: bool = False
    """Whether a run that the control plane's end cut off may simply be run again."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Of which versions of other functions it reads the artifacts, as semver ranges: {"BackupData": ">=1.0.0 <2"}."""
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    validate: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Errors about arguments that are not rendered yet, beyond which of them are there."""
    unavailable: Callable[[PhaseEnvironment], str] | None = None
    """Why it cannot run here, such as a program that is not installed; an empty text if it can."""

    @property
    def title(self) -> str:
        """`KubeExec v0.1.0`, as messages name it."""
        return f"{self.name} {self.version}"


DECLARED: Final = "__phase_functions__"
"""The attribute in which a decorated callable carries its declarations."""


def phase_function(
    name: str,
    *,
    version: str = UNVERSIONED,
    stable: bool = False,
    required: Iterable[str] = (),
    arguments: Iterable[str] | None = (),
    engines: Iterable[Engine] = ENGINES,
    renders_itself: bool = False,
    resumable: bool = False,
    reads: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    description: str = "",
    validate: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    unavailable: Callable[[PhaseEnvironment], str] | None = None,
) -> Callable[[F], F]:
    """Declare a callable to be a version of a phase function; it stays what it is. See the head of this module.

    One callable may be several versions: decorate it several times.
    """

    def declare(implementation: F) -> F:
        declared = PhaseFunction(
            name=name,
            run=implementation,
            version=version,
            stable=stable,
            required=tuple(required),
            arguments=None if arguments is None else tuple(arguments),
            engines=tuple(engines),
            renders_itself=renders_itself,
            resumable=resumable,
            reads=dict(reads or {}),
            labels=dict(labels or {}),
            description=description or (implementation.__doc__ or "").strip().partition("\n")[0],
            validate=validate,
            unavailable=unavailable,
        )
        setattr(implementation, DECLARED, (*vars(implementation).get(DECLARED, ()), declared))
        return implementation

    return declare


def __getattr__(name: str) -> object:
    """Plug-ins written before PhaseEnvironment had this name still find it."""
    if name == "Surroundings":
        return PhaseEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
