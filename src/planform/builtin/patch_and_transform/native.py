"""What Compositions in Resources mode wrote differently: `mergeOptions`, today a word of `policy.toFieldPath`."""

from __future__ import annotations

from typing import Any


def modernise(value: Any) -> Any:
    """The same input in today's words. Everything else, right or wrong, is left to the strict reading that follows."""
    if isinstance(value, list):
        return [modernise(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: member if key in ("base", "policy") else modernise(member) for key, member in value.items()}
    policy = value.get("policy")
    if isinstance(policy, dict) and isinstance(policy.get("mergeOptions"), dict) and "toFieldPath" not in policy:
        rest = {key: member for key, member in policy.items() if key != "mergeOptions"}
        result["policy"] = {**rest, "toFieldPath": _word(policy["mergeOptions"])}
    return result


def _word(options: dict[str, Any]) -> str:
    keeps, appends = bool(options.get("keepMapValues")), bool(options.get("appendSlice"))
    return f"{'' if keeps else 'Force'}MergeObjects{'AppendArrays' if appends else ''}"
