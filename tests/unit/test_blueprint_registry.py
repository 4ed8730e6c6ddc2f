"""What can be registered as a phase function, and what is refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from planform.blueprints.arguments import Arguments, argument_problems
from planform.blueprints.contract import PhaseContext, PhaseFunction, phase_function
from planform.blueprints.errors import ArgumentInvalid, RegistrationRefused
from planform.blueprints.registry import PhaseFunctionRegistry


def nothing(context: PhaseContext, args: Arguments) -> None: ...


def registry(*functions: Any) -> PhaseFunctionRegistry:
    made = PhaseFunctionRegistry(plugins=lambda: ())
    made.register(*functions)
    return made


def titles(found: PhaseFunctionRegistry) -> list[str]:
    return [function.title for function in found]


def version(name: str, number: str, **more: Any) -> PhaseFunction:
    return PhaseFunction(name=name, run=nothing, version=number, **more)


def test_a_plain_callable_becomes_the_unversioned_version_of_its_own_name() -> None:
    assert titles(registry(nothing)) == ["nothing v0.0.0"]


def test_a_callable_object_is_registered_by_the_name_it_says_without_any_other_member() -> None:
    class Legacy:
        name = "CustomBackup"

        def __call__(self, context: PhaseContext, args: Mapping[str, Any]) -> None: ...

    (function,) = registry(Legacy())
    assert (function.title, function.arguments, function.validate) == ("CustomBackup v0.0.0", None, None)


def test_versions_declared_one_by_one_are_one_function() -> None:
    @phase_function("Greet", required=["name"])
    def old(context: PhaseContext, args: Arguments) -> None:
        """Say hello."""

    @phase_function("Greet", version="v0.1.0", stable=True, required=["name"], arguments=["language"])
    def new(context: PhaseContext, args: Arguments) -> None: ...

    found = registry(old, new)
    assert titles(found) == ["Greet v0.0.0", "Greet v0.1.0"]
    first = found.find("Greet", "v0.0.0")
    assert first is not None
    assert (first.description, first.arguments) == ("Say hello.", ())


def test_one_callable_may_be_several_versions() -> None:
    @phase_function("Greet", version="v0.1.0")
    @phase_function("Greet")
    def both(context: PhaseContext, args: Arguments) -> None: ...

    assert titles(registry(both)) == ["Greet v0.0.0", "Greet v0.1.0"]


def test_a_class_does_not_inherit_the_declarations_of_the_class_it_extends() -> None:
    @phase_function("Greet")
    class First:
        def __call__(self, context: PhaseContext, args: Arguments) -> None: ...

    @phase_function("Greet", version="v0.1.0")
    class Second(First): ...

    assert titles(registry(First, Second)) == ["Greet v0.0.0", "Greet v0.1.0"]


def test_a_module_brings_what_it_defines_and_not_what_it_imports() -> None:
    @phase_function("Theirs")
    def theirs(context: PhaseContext, args: Arguments) -> None: ...

    @phase_function("Ours")
    def ours(context: PhaseContext, args: Arguments) -> None: ...

    module = ModuleType("planform_test_plugin")
    ours.__module__ = module.__name__
    vars(module).update(theirs=theirs, ours=ours, something=3)
    assert titles(registry(module)) == ["Ours v0.0.0"]


@pytest.mark.parametrize("spelling", ["0.1.0", "v0.1.0", "v0.1.0+build.7"])
def test_spellings_of_one_version_find_and_exclude_each_other(spelling: str) -> None:
    found = registry(version("Greet", "0.1.0+first"))
    assert found.find("Greet", spelling) is not None
    with pytest.raises(RegistrationRefused, match="registered already"):
        found.register(version("Greet", spelling))


def test_a_pre_release_is_a_version_of_its_own() -> None:
    assert titles(registry(version("G", "v0.1.0-rc.10"), version("G", "0.1.0-rc.2"), version("G", "0.1.0"))) == [
        "G v0.1.0-rc.2",
        "G v0.1.0-rc.10",
        "G v0.1.0",
    ]


@pytest.mark.parametrize("number", ["", "latest", "v1", "v0.1", " v0.1.0", "v01.0.0", "v1.2.3.4"])
def test_what_is_no_version_is_refused(number: str) -> None:
    with pytest.raises(RegistrationRefused, match="is not a version as in"):
        registry(version("Greet", number))


@pytest.mark.parametrize(
    ("functions", "complaint"),
    [
        ([None], "has no implementation"),
        ([version("A", "v1.0.0"), None], "has no implementation"),
        ([version("A", "v1.0.0"), version("A", "1.0.0")], "registered already"),
        ([version("A", "v1.0.0", stable=True), version("A", "v2.0.0", stable=True)], "two stable versions"),
        ([version(" ", "v1.0.0")], "needs a name"),
        ([version("A", "v1.0.0", engines=())], "runs on no engine"),
        ([7], "cannot be called"),
    ],
)
def test_a_set_of_functions_of_which_one_is_refused_leaves_no_trace(functions: list[Any], complaint: str) -> None:
    found = registry()
    with pytest.raises(RegistrationRefused, match=complaint):
        found.register(version("Before", "v1.0.0"), *functions)
    assert titles(found) == []


def test_a_map_of_versions_registers_every_entry_and_borrows_what_they_declare() -> None:
    @phase_function("Parent", required=["pod"])
    def parent(context: PhaseContext, args: Arguments) -> None: ...

    found = registry()
    found.register_versioned("KubeExec", {"v0.0.0": parent, "0.1.0": nothing}, stable="v0.1.0")
    assert [(each.title, each.stable, each.required) for each in found] == [
        ("KubeExec v0.0.0", False, ("pod",)),
        ("KubeExec v0.1.0", True, ()),
    ]


@pytest.mark.parametrize(
    ("versions", "stable", "complaint"),
    [
        ({"v0.0.0": nothing, "v0.1.0": None}, "v0.0.0", "has no implementation"),
        ({"v0.0.0": nothing}, "v0.1.0", "is not among its versions"),
        ({"v0.0.0": nothing}, "latest", "is not a version"),
        ({"v0.1.0": nothing, "0.1.0": nothing}, "v0.1.0", "registered already"),
        ({"v0.1.0": []}, "v0.1.0", "has 0 implementations"),
    ],
)
def test_a_map_of_versions_is_registered_whole_or_not_at_all(
    versions: dict[str, Any], stable: str, complaint: str
) -> None:
    found = registry()
    with pytest.raises(RegistrationRefused, match=complaint):
        found.register_versioned("KubeExec", versions, stable=stable)
    assert titles(found) == []


def test_readers_see_whole_registrations_while_others_register() -> None:
    found = registry()
    seen: list[int] = []

    def read() -> None:
        while not seen or seen[-1] < 200:
            seen.append(sum(len(versions) for versions in found.functions.values()))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        found.register(version(f"F{number}", "v0.0.0"), version(f"F{number}", "v1.0.0"))
    reader.join(10)
    assert all(count % 2 == 0 for count in seen)
    assert seen == sorted(seen)


def test_functions_that_are_brought_replace_those_before_and_never_what_is_registered() -> None:
    found = registry(version("Own", "v0.0.0"))
    found.bring([version("Own", "v9.0.0"), version("Packaged", "v1.0.0", stable=True)])
    assert titles(found) == ["Own v0.0.0", "Packaged v1.0.0"]
    seen = found.generation
    found.bring([version("Packaged", "v2.0.0", stable=True)])
    assert titles(found) == ["Own v0.0.0", "Packaged v2.0.0"]
    assert found.generation > seen
    with pytest.raises(RegistrationRefused, match="two stable versions"):
        found.bring([version("Packaged", number, stable=True) for number in ("v3.0.0", "v4.0.0")])
    assert titles(found) == ["Own v0.0.0", "Packaged v2.0.0"]


def test_plug_ins_are_imported_when_somebody_first_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("planform_test_lazy")
    vars(module)["greet"] = phase_function("Greet")(nothing_of(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    asked: list[str] = []

    def plugins() -> list[EntryPoint]:
        asked.append("now")
        return [EntryPoint("greet", "planform_test_lazy:greet", "planform.phase_functions")]

    found = PhaseFunctionRegistry(plugins)
    found.register(version("Built-in", "v0.0.0"))
    assert asked == []
    assert titles(found) == ["Built-in v0.0.0", "Greet v0.0.0"]
    assert titles(found) and asked == ["now"]


def test_a_plug_in_that_cannot_be_used_is_told_and_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("planform_test_good")
    vars(module)["greet"] = phase_function("Greet")(nothing_of(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    group = "planform.phase_functions"
    found = PhaseFunctionRegistry(
        lambda: [
            EntryPoint("a-missing", "planform_test_missing:x", group),
            EntryPoint("b-good", "planform_test_good:greet", group),
            EntryPoint("c-again", "planform_test_good:greet", group),
        ]
    )
    assert titles(found) == ["Greet v0.0.0"]
    assert ['"a-missing"' in found.problems[0], '"c-again"' in found.problems[1]] == [True, True]


def nothing_of(module: ModuleType) -> Any:
    def made(context: PhaseContext, args: Arguments) -> None: ...

    made.__module__ = module.__name__
    return made


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        ("integer", "3", 3),
        ("integer", 3.0, 3),
        ("flag", "true", True),
        ("flag", "0", False),
        ("text", 3, "3"),
        ("text", True, "true"),
        ("texts", "one", ["one"]),
        ("texts", ["a", 2], ["a", "2"]),
        ("texts", "- a\n- b\n", ["a", "b"]),
        ("texts", '["a", "b"]', ["a", "b"]),
        ("table", "a: 1", {"a": 1}),
        ("table", {"a": None}, {"a": None}),
    ],
)
def test_arguments_are_read_weakly(read: str, value: Any, expected: Any) -> None:
    assert getattr(Arguments({"x": value}), read)("x") == expected


@pytest.mark.parametrize(
    ("read", "value"),
    [("integer", "three"), ("integer", True), ("integer", 1.5), ("flag", "maybe"), ("text", {}), ("table", "[]")],
)
def test_an_argument_of_the_wrong_type_is_named_with_its_function_and_version(read: str, value: Any) -> None:
    with pytest.raises(ArgumentInvalid, match=r'Greet v0\.1\.0: argument "x" must be'):
        getattr(Arguments({"x": value}, of="Greet v0.1.0"), read)("x")


def test_an_argument_without_a_default_has_to_be_there() -> None:
    args = Arguments({"none": None}, of="Greet v0.0.0")
    assert args.text("none", "fallback") == "fallback"
    with pytest.raises(ArgumentInvalid, match='argument "other" is missing'):
        args.text("other")


def test_missing_and_unknown_arguments_are_all_told() -> None:
    assert argument_problems("F v1.0.0", ["a", "z"], required=["b", "a"], supported=["c"]) == [
        'F v1.0.0: required argument "b" is missing',
        'F v1.0.0: argument "z" is not supported (it takes: a, b, c)',
    ]
    assert argument_problems("F v1.0.0", ["z"], required=[], supported=None) == []
