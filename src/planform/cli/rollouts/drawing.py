"""A Rollout for people: a head line, a line for each wave, and what keeps it waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from planform.api.kinds import Object
from planform.apimachinery.age import age
from planform.cli.output import table

HEADERS = ("NAME", "PHASE", "WAVE", "STATE", "MOVED", "READY", "FAILED", "WAITING FOR")

UNDER_WAY = ("Running", "Paused")
"""Phases in which a Rollout is in a wave; its status names the last one also afterwards."""


def phase_of(rollout: Mapping[str, Any]) -> str:
    return str((rollout.get("status") or {}).get("phase") or "Pending")


def listed(rollouts: list[Object]) -> str:
    return table(HEADERS, [_row(each) for each in rollouts])


def picture(rollout: Object, now: datetime) -> Iterator[str]:
    """What `status` prints and `watch` draws."""
    status = rollout.get("status") or {}
    yield _head(rollout, status, now)
    if status.get("message"):
        yield f"  {status['message']}"
    shown = [each for each in status.get("waves") or () if each.get("xrs")]
    width = max((len(each["name"]) for each in shown), default=0)
    figures = max((len(_moved(each)) for each in shown), default=0)
    for wave in shown:
        yield _wave(wave, width, figures)
    counts = status.get("counts") or {}
    apart = [
        f"{words} {counts[name]}"
        for name, words in (
            ("putOff", "put off (not well before)"),
            ("skipped", "skipped"),
            ("pinned", "pinned"),
            ("unmatched", "unmatched"),
            ("byHand", "moved by hand"),
            ("deviated", "plan deviates"),
        )
        if counts.get(name)
    ]
    if apart:
        yield "  " + "   ".join(apart)
    if status.get("waiting"):
        yield f"  waiting for {status['waiting']['for']}: {status['waiting']['message']}"
    for failing in status.get("failing") or ():
        yield f"  failed  {failing['xr']}: {failing.get('message') or '-'}"


def history(rollout: Object) -> str:
    entries = (rollout.get("status") or {}).get("history") or ()
    rows = [
        (each["time"], each["by"], each["action"], each.get("wave"), each.get("reason") or each.get("outcome"))
        for each in entries
    ]
    return table(("TIME", "BY", "ACTION", "WAVE", "REASON"), rows)


def change_of(rollout: Mapping[str, Any]) -> str:
    """`db  r6 -> r7` for each Composition that changes."""
    return ", ".join(
        f"{each['composition']}  r{each.get('fromNumber') or 0} -> r{each['toNumber']}"
        for each in rollout["spec"]["changes"]
    )


def _head(rollout: Object, status: Mapping[str, Any], now: datetime) -> str:
    parts = [change_of(rollout), phase_of(rollout)]
    wave = status.get("wave")
    waves = [each["name"] for each in status.get("waves") or () if each.get("xrs")]
    if wave and wave["name"] in waves and phase_of(rollout) in UNDER_WAY:
        place = f"wave {waves.index(wave['name']) + 1}/{len(waves)} {wave['name']}"
        parts.append(place + (f" part {wave['part']}" if wave["part"] > 1 else ""))
        parts.append(_state(wave, now))
    parts.append(f"Rollout {rollout['metadata']['name']}, {age(rollout['metadata']['creationTimestamp'], now)}")
    return "   ".join(each for each in parts if each)


def _state(wave: Mapping[str, Any], now: datetime) -> str:
    if wave.get("state") == "Soaking" and wave.get("until"):
        left = max(0, round((datetime.fromisoformat(wave["until"]) - now).total_seconds()))
        return f"soak {left // 60}m{left % 60:02}s left" if left >= 60 else f"soak {left}s left"
    return str(wave.get("state") or "").lower()


def _wave(wave: Mapping[str, Any], width: int, figures: int) -> str:
    parts = [f"  {wave['name']:<{width}}  {_moved(wave):>{figures}}", f"ready {wave.get('ready', 0)}"]
    if wave.get("inFlight"):
        parts.append(f"{wave['inFlight']} moving")
    if wave.get("failed"):
        parts.append(f"{wave['failed']} failed")
    for gate in wave.get("gates") or ():
        value = f" {gate['value']}" if gate.get("value") else ""
        threshold = f" {gate['threshold']}" if gate.get("threshold") else ""
        parts.append(f"{gate['name']}{value}{threshold} {str(gate.get('verdict', '')).lower()}")
    return "   ".join(parts)


def _moved(wave: Mapping[str, Any]) -> str:
    return f"{wave.get('target', 0)}/{wave.get('xrs', 0)}"


def _row(rollout: Object) -> tuple[object, ...]:
    status = rollout.get("status") or {}
    counts, wave = status.get("counts") or {}, status.get("wave") or {}
    over = phase_of(rollout) not in UNDER_WAY
    return (
        rollout["metadata"]["name"],
        phase_of(rollout),
        None if over else wave.get("name"),
        None if over else wave.get("state"),
        f"{counts.get('target', 0)}/{counts.get('xrs', 0)}",
        counts.get("ready", 0),
        counts.get("failed", 0),
        (status.get("waiting") or {}).get("for"),
    )
