"""CEL trees as closures.

A program runs on a frame: a list whose first slot is the budget that is left and whose other slots are variables. Each
turn of a comprehension, and each call whose work depends on the size of its arguments, pays before it acts, so that no
expression can run for longer than its budget, whatever it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planform.apimachinery.cel_functions import Overload, constant
from planform.apimachinery.cel_syntax import (
    Bind,
    Call,
    Ident,
    ListNode,
    Literal,
    Macro,
    MapNode,
    Node,
    Select,
    children,
)
from planform.apimachinery.cel_types import Type
from planform.apimachinery.cel_values import (
    NOTHING,
    BudgetExceeded,
    EvaluationError,
    Optional,
    equal,
    equality,
    fits,
    item_key,
    kind_of,
    new_uint,
    reader,
    type_value,
    weight,
)

Frame = list[Any]
Run = Callable[[Frame], Any]


class Program:
    """A compiled expression; variables are given by name."""

    def __init__(self, node: Node, variables: Mapping[str, Type]) -> None:
        self._slots = {name: index + 1 for index, name in enumerate(variables)}
        self._readers = {name: reader(kind) for name, kind in variables.items()}
        compiler = _Compiler(dict(self._slots))
        self._run = compiler.compile(node)
        self._size = compiler.size
        self._flat = _flat_cost(node)

    def evaluate(self, bindings: Mapping[str, Any], budget: float) -> tuple[Any, float]:
        """The value, and what is left of the budget; raises EvaluationError or BudgetExceeded."""
        frame: Frame = [None] * self._size
        frame[0] = budget - self._flat
        for name, value in bindings.items():
            read = self._readers[name]
            frame[self._slots[name]] = value if read is None or value is None else read(value)
        if frame[0] < 0:
            raise BudgetExceeded
        return self._run(frame), frame[0]


def _flat_cost(node: Node) -> int:
    """One for each node, without the bodies of comprehensions, which pay for each turn."""
    below = [node.target] if isinstance(node, Macro) else children(node)
    return 1 + sum(map(_flat_cost, below))


def pay(frame: Frame, cost: float) -> None:
    frame[0] -= cost
    if frame[0] < 0:
        raise BudgetExceeded


class _Compiler:
    def __init__(self, slots: dict[str, int]) -> None:
        self._slots = slots
        self.size = len(slots) + 1

    def compile(self, node: Node) -> Run:
        match node:
            case Literal():
                value = new_uint(node.value) if node.kind == "uint" else node.value
                return lambda frame: value
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Macro():
                return self._macro(node)
            case Bind():
                return self._bind(node)
        raise AssertionError(f"no program for {type(node).__name__}")

    def _within(self, names: Sequence[str], body: Node) -> tuple[list[int], Run]:
        """Compile a body that sees more variables; each gets a slot of its own."""
        outer = dict(self._slots)
        slots = []
        for name in names:
            self._slots[name] = self.size
            slots.append(self.size)
            self.size += 1
        run = self.compile(body)
        self._slots = outer
        return slots, run

    def _ident(self, node: Ident) -> Run:
        slot = self._slots.get(node.name)
        if slot is None:
            value = type_value(node.name)
            return lambda frame: value
        return lambda frame: frame[slot]

    def _select(self, node: Select) -> Run:
        operand, kind = self.compile(node.operand), node.operand.type
        chained = kind.name == "optional"
        inner = kind.args[0] if chained else kind
        if inner.fields is not None:
            field = inner.fields[node.name]
            find = _value_finder(field.key) if inner.keeps_null else _field_finder(field.key, reader(field.type))
        else:
            find = _entry_finder(node.name)
        if node.presence:
            if not chained:
                return lambda frame: find(operand(frame)) is not NOTHING
            return lambda frame: (box := operand(frame)).present and find(box.value) is not NOTHING
        if chained:

            def run_chained(frame: Frame) -> Any:
                box = operand(frame)
                return _boxed(find(box.value)) if box.present else NOTHING

            return run_chained
        if node.optional:
            return lambda frame: _boxed(find(operand(frame)))
        name = node.name

        def run(frame: Frame) -> Any:
            value = find(operand(frame))
            if value is NOTHING:
                raise EvaluationError(f"no such key: {name}")
            return value

        return run

    def _call(self, node: Call) -> Run:
        if node.name in ("_&&_", "_||_"):
            return _logic(*map(self.compile, node.args), stop=node.name == "_||_")
        if node.name == "_?_:_":
            return _conditional(*map(self.compile, node.args))
        operands = ([node.target] if node.target is not None else []) + node.args
        args = [self.compile(operand) for operand in operands]
        if node.name in ("orValue", "or") and operands[0].type.name == "optional":
            return _fallback(args[0], args[1], unwrap=node.name == "orValue")
        overloads: list[Overload] = node.overloads
        if node.name in ("_==_", "_!=_"):
            return _comparison(args[0], args[1], operands[0].type, operands[1].type, negate=node.name == "_!=_")
        if node.name == "_+_" and operands[0].type.list_type in ("set", "map"):
            return _merge(args[0], args[1], operands[0].type)
        if any(operand.type.name == "dyn" or _has_dyn(operand.type) for operand in operands):
            return _dispatch(node.name, overloads, args)
        overload = overloads[0]
        pays = overload.cost is not constant and (node.name == "_+_" or not node.name.startswith("_"))
        if pays:
            return _paying(overload, args)
        call = overload.run
        if len(args) == 1:
            only = args[0]
            return lambda frame: call(only(frame))
        if len(args) == 2:
            one, other = args
            return lambda frame: call(one(frame), other(frame))
        return lambda frame: call(*[arg(frame) for arg in args])

    def _list(self, node: ListNode) -> Run:
        items = [self.compile(item) for item in node.items]
        if not node.optional:
            return lambda frame: [item(frame) for item in items]
        optional = node.optional

        def run(frame: Frame) -> Any:
            made = []
            for index, item in enumerate(items):
                value = item(frame)
                if index not in optional:
                    made.append(value)
                elif value.present:
                    made.append(value.value)
            return made

        return run

    def _map(self, node: MapNode) -> Run:
        entries = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]

        def run(frame: Frame) -> Any:
            made: dict[Any, Any] = {}
            for make_key, make_value, optional in entries:
                key, value = make_key(frame), make_value(frame)
                if optional:
                    if not value.present:
                        continue
                    value = value.value
                _insert(made, key, value)
            return made

        return run

    def _bind(self, node: Bind) -> Run:
        value = self.compile(node.value)
        (slot,), body = self._within([node.name], node.body)
        if node.form == "bind":

            def run_bind(frame: Frame) -> Any:
                frame[slot] = value(frame)
                return body(frame)

            return run_bind
        wrap = node.form == "optMap"

        def run_optional(frame: Frame) -> Any:
            box = value(frame)
            if not isinstance(box, Optional):
                raise EvaluationError("no such overload: an optional is expected")
            if not box.present:
                return NOTHING
            frame[slot] = box.value
            return Optional(True, body(frame)) if wrap else body(frame)

        return run_optional

    def _macro(self, node: Macro) -> Run:
        items = self.compile(node.target)
        outer = dict(self._slots)
        slots, _ = self._within(node.variables, Literal(node.offset, None, "null"))
        self._slots.update(zip(node.variables, slots, strict=True))
        bodies = [self.compile(body) for body in node.bodies]
        self._slots = outer
        iterations = _iterations(items, slots, sum(map(_flat_cost, node.bodies)))
        match node.name:
            case "all":
                return _quantifier(iterations, bodies[0], stop=False)
            case "exists":
                return _quantifier(iterations, bodies[0], stop=True)
            case "exists_one" | "existsOne":
                return lambda frame: sum(_truth(bodies[0](frame)) for _ in iterations(frame)) == 1
            case "filter":
                slot, test = slots[0], bodies[0]
                return lambda frame: [frame[slot] for _ in iterations(frame) if _truth(test(frame))]
            case "sortBy":
                return _sort_by(iterations, slots[0], bodies[0])
            case "map" | "transformList":
                if len(bodies) == 1:
                    make = bodies[0]
                    return lambda frame: [make(frame) for _ in iterations(frame)]
                test, make = bodies
                return lambda frame: [make(frame) for _ in iterations(frame) if _truth(test(frame))]
        return _transform_map(iterations, slots[0], bodies, whole=node.name == "transformMapEntry")


def _field_finder(key: str, read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A field of an object; null is as good as absent."""

    def find(obj: Any) -> Any:
        value = obj.get(key)
        return NOTHING if value is None else value

    if read is None:
        return find

    def find_and_read(obj: Any) -> Any:
        value = obj.get(key)
        return NOTHING if value is None else read(value)

    return find_and_read


def _value_finder(key: str) -> Callable[[Any], Any]:
    """A field that is there whatever its value is, and is a value of CEL already."""
    return lambda obj: obj.get(key)


def _entry_finder(name: str) -> Callable[[Any], Any]:
    def find(obj: Any) -> Any:
        if type(obj) is dict:
            return obj.get(name, NOTHING)
        raise EvaluationError(f"no such overload: {kind_of(obj)} has no fields")

    return find


def _boxed(value: Any) -> Any:
    return value if value is NOTHING else Optional(True, value)


def _has_dyn(kind: Type) -> bool:
    return any(arg.name == "dyn" or _has_dyn(arg) for arg in kind.args)


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError("no such overload: a bool is expected")


def _logic(left: Run, right: Run, *, stop: bool) -> Run:
    """`&&` and `||`: one side that decides makes the other's error irrelevant, whichever comes first."""

    def run(frame: Frame) -> Any:
        try:
            decided = _truth(left(frame))
        except EvaluationError:
            if _truth(right(frame)) is stop:
                return stop
            raise
        return stop if decided is stop else _truth(right(frame))

    return run


def _conditional(condition: Run, yes: Run, no: Run) -> Run:
    return lambda frame: yes(frame) if _truth(condition(frame)) else no(frame)


def _fallback(box: Run, other: Run, *, unwrap: bool) -> Run:
    def run(frame: Frame) -> Any:
        found = box(frame)
        if found.present:
            return found.value if unwrap else found
        return other(frame)

    return run


def _comparison(one: Run, other: Run, kind: Type, others: Type, *, negate: bool) -> Run:
    same = equality(kind) if kind.name == others.name else equal
    if kind.name in ("list", "map", "object", "dyn"):

        def run(frame: Frame) -> Any:
            first, second = one(frame), other(frame)
            if type(first) in (dict, list):
                pay(frame, weight(first))
            return same(first, second) is not negate

        return run
    if negate:
        return lambda frame: not same(one(frame), other(frame))
    return lambda frame: same(one(frame), other(frame))


def _merge(one: Run, other: Run, kind: Type) -> Run:
    """`+` on lists that are sets or maps: a union, where the right side's items win in their old places."""
    keys, same = kind.list_keys, equality(kind.args[0])

    def run(frame: Frame) -> Any:
        merged = list(one(frame))
        added = other(frame)
        pay(frame, len(merged) + len(added) if kind.list_type == "map" else (len(merged) + len(added)) * len(added))
        if kind.list_type == "map":
            at = {item_key(item, keys): index for index, item in enumerate(merged)}
            for item in added:
                index = at.setdefault(item_key(item, keys), len(merged))
                merged[index : index + 1] = [item]
            return merged
        for item in added:
            if not any(same(item, found) for found in merged):
                merged.append(item)
        return merged

    return run


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def _paying(overload: Overload, args: list[Run]) -> Run:
    call, cost = overload.run, overload.cost

    def run(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        pay(frame, cost([_size(value) for value in values]))
        return call(*values)

    return run


def _dispatch(name: str, overloads: list[Overload], args: list[Run]) -> Run:
    """A call with arguments whose types only show now."""

    def run(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        for overload in overloads:
            if all(map(fits, values, overload.params)):
                if overload.cost is not constant:
                    pay(frame, overload.cost([_size(value) for value in values]))
                return overload.run(*values)
        kinds = ", ".join(map(kind_of, values))
        raise EvaluationError(f"no such overload: {name}({kinds})")

    return run


def _iterations(items: Run, slots: list[int], cost: int) -> Callable[[Frame], Any]:
    """The iterations of a comprehension: each pays, sets the variables and runs the body."""
    price = cost + 1

    def iterations(frame: Frame) -> Any:
        found = items(frame)
        kind = type(found)
        if kind is not list and kind is not dict:
            raise EvaluationError(f"no such overload: {kind_of(found)} is neither a list nor a map")
        if len(slots) == 1:
            (slot,) = slots
            for item in found:
                pay(frame, price)
                frame[slot] = item
                yield
        else:
            first, second = slots
            for key, item in enumerate(found) if kind is list else found.items():
                pay(frame, price)
                frame[first], frame[second] = key, item
                yield

    return iterations


def _quantifier(iterations: Callable[[Frame], Any], body: Run, *, stop: bool) -> Run:
    """`all` and `exists`: a turn that decides makes other turns' errors irrelevant."""

    def run(frame: Frame) -> Any:
        failed: EvaluationError | None = None
        for _ in iterations(frame):
            try:
                if _truth(body(frame)) is stop:
                    return stop
            except EvaluationError as error:
                failed = error
        if failed is not None:
            raise failed
        return not stop

    return run


def _sort_by(iterations: Callable[[Frame], Any], slot: int, key: Run) -> Run:
    def run(frame: Frame) -> Any:
        pairs = [(key(frame), frame[slot]) for _ in iterations(frame)]
        if len({type(made) for made, _ in pairs}) > 1 or any(
            type(made) in (list, dict, type(None)) for made, _ in pairs
        ):
            raise EvaluationError("no such overload: the keys of sortBy cannot be compared")
        return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]

    return run


def _transform_map(iterations: Callable[[Frame], Any], slot: int, bodies: list[Run], *, whole: bool) -> Run:
    make = bodies[-1]
    test = bodies[0] if len(bodies) == 2 else None

    def run(frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for _ in iterations(frame):
            if test is not None and not _truth(test(frame)):
                continue
            value = make(frame)
            if not whole:
                made[frame[slot]] = value
                continue
            for key, item in value.items():
                _insert(made, key, item)
        return made

    return run


def _insert(made: dict[Any, Any], key: Any, value: Any) -> None:
    if type(key) is float or isinstance(key, list | dict | bytes) or key is None:
        raise EvaluationError("unsupported key type")
    if key in made:
        raise EvaluationError(f"insert failed: key {key} already exists")
    made[key] = value
