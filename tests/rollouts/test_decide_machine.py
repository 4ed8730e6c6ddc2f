"""The state machine of Rollouts as a pure function, driven through made-up fleets with crashes, losses and people."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from planform.api.kinds import Object
from planform.api.rollouts import FINAL, Rollout, RolloutAction
from planform.compositions.released import verdict_of
from planform.rollouts.decide import Moves, decide
from planform.rollouts.facts import Facts, PartCounts, WaveCounts
from planform.rollouts.waves import Member, Placement, place, waves_of

START = datetime(2026, 1, 1, tzinfo=UTC)
SEEDS = 300


@dataclass
class Xr:
    uid: str
    labels: dict[str, str]
    state: str = "pending"
    """pending, moving, ready, failed"""
    well: bool = True


@dataclass
class World:
    """A fleet without a control plane: what a Rollout sees and what its moves do."""

    strategy: Object
    rng: Random
    xrs: list[Xr] = field(default_factory=list)
    actions: list[RolloutAction] = field(default_factory=list)
    now: datetime = START
    status: Object = field(default_factory=dict)
    most_failed: int = 0
    admitted_after_stop: int = 0

    def rollout(self) -> Rollout:
        change = {"composition": "db", "from": "db-1", "fromNumber": 1, "to": "db-2", "toNumber": 2}
        return msgspec.convert(
            {
                "metadata": {"name": "db-r2", "uid": "u"},
                "spec": {"policy": "p", "changes": [change], "strategy": self.strategy},
                "status": self.status,
            },
            Rollout,
        )

    def places(self) -> dict[str, Placement]:
        strategy = self.rollout().spec.strategy
        return place(strategy, [Member(each.uid, each.labels) for each in self.xrs], seed="p")

    def facts(self) -> Facts:
        waves = waves_of(self.rollout().spec.strategy)
        counts = [WaveCounts(each.name, [PartCounts() for _ in each.shares]) for each in waves]
        facts, placed = Facts(counts), self.places()
        for xr in self.xrs:
            wave, part = placed[xr.uid]
            if xr.state == "pending" and not xr.well:
                facts.put_off += 1
                continue
            counted = counts[wave].parts[part]
            setattr(counted, xr.state, getattr(counted, xr.state) + 1)
            facts.returning += xr.state != "pending"
        return facts

    def act(self, action: str, **spec: Any) -> None:
        made = {
            "metadata": {"name": f"a{len(self.actions)}", "uid": f"a{len(self.actions)}"},
            "spec": {"rollout": "db-r2", "action": action, "by": "alice", "at": self.now.isoformat(), **spec},
        }
        self.actions.append(msgspec.convert(made, RolloutAction))

    def decide(self) -> Moves:
        return decide(self.rollout(), self.actions, self.facts(), self.now)

    def step(self, *, crash: str = "") -> Moves:
        """One reconcile, cut off before or after each of its writes if it crashes."""
        moves = self.decide()
        if crash == "before":
            return moves
        for action, reason in moves.act:
            if not any(each.spec.action == action for each in self.actions):
                self.act(action, reason=reason, by="planform")
        if crash == "after actions":
            return moves
        self.status = msgspec.to_builtins(moves.status)
        if crash == "after status" or moves.admit is None or moves.act:
            return moves
        self._admit(moves)
        return moves

    def _admit(self, moves: Moves) -> None:
        assert moves.admit is not None
        placed, limit = self.places(), Placement(moves.admit.wave, moves.admit.part)
        last = moves.admit.wave == len(waves_of(self.rollout().spec.strategy)) - 1
        free = [each for each in self.xrs if each.state == "pending" and each.well and placed[each.uid] <= limit]
        if last:
            free += [each for each in self.xrs if each.state == "pending" and not each.well]
        for xr in free[: moves.admit.count]:
            assert verdict_of(self.actions)[0] == "Active", "nobody is moved after a stop is stored"
            xr.state = "moving"

    def live(self, failure: float) -> None:
        """Time goes on: XRs settle or fail, and go back where their revision was taken back."""
        self.now += timedelta(seconds=self.rng.choice([0, 1, 30]))
        verdict = verdict_of(self.actions)[0]
        for xr in self.xrs:
            if verdict in ("Aborted", "Undone") and xr.state != "pending" and self.rng.random() < 0.5:
                xr.state = "pending"
            elif xr.state == "moving" and self.rng.random() < 0.6:
                xr.state = "failed" if self.rng.random() < failure else "ready"


def world(seed: int, **strategy: Any) -> World:
    rng = Random(seed)
    made = World(
        {
            "concurrency": rng.randint(1, 6),
            "budget": {"maxFailures": rng.randint(0, 2)},
            "waves": [
                {"name": "canary", "xrs": {"matchLabels": {"canary": "yes"}}, "soak": rng.choice(["0s", "30s"])},
                {"name": "half", "percent": [rng.randint(1, 99), 100], "max": rng.randint(1, 30)},
            ],
            **strategy,
        },
        rng,
    )
    for number in range(rng.randint(0, 25)):
        labels = {"canary": "yes"} if rng.random() < 0.2 else {}
        made.xrs.append(Xr(f"x{number}", labels, well=rng.random() < 0.9))
    return made


def _oracle(here: World, moves: Moves) -> None:
    """What must hold whatever happens."""
    strategy = here.rollout().spec.strategy
    facts = here.facts()
    moving = sum(part.moving for wave in facts.waves for part in wave.parts)
    assert moving <= (strategy.concurrency or 0), "never more on their way than allowed"
    placed = here.places()
    begun = {placed[each.uid] for each in here.xrs if each.state != "pending" and each.well}
    if not begun:
        return
    furthest = max(begun)
    for xr in here.xrs:
        at = placed[xr.uid]
        if at.wave < furthest.wave and xr.state == "pending" and xr.well and moves.status.phase == "Running":
            assert verdict_of(here.actions)[0] == "Active"


@pytest.mark.parametrize("failure", [0.0, 0.15], ids=["all well", "some fail"])
def test_machine_converges_whatever_is_lost_and_whenever_it_crashes(failure: float) -> None:
    for seed in range(SEEDS):
        here = world(seed)
        for _ in range(400):
            crash = here.rng.choice(["", "", "", "before", "after actions", "after status"])
            moves = here.step(crash=crash)
            _oracle(here, moves)
            if here.rng.random() < 0.02:
                here.status = {}  # a restore, or somebody wiped it
            here.live(failure)
            if (here.status.get("phase") in FINAL) and here.status["phase"] == verdict_of(here.actions)[0]:
                break
        verdict = verdict_of(here.actions)[0]
        assert verdict in ("Completed", "Aborted"), (seed, here.status)
        if verdict == "Completed":
            assert all(each.state in ("ready", "failed") for each in here.xrs), seed
        else:
            for _ in range(60):
                here.live(0)
                here.step()
            assert all(each.state == "pending" for each in here.xrs), seed
            assert here.status["phase"] == "Aborted"


def test_machine_says_the_same_twice_and_writes_nothing_at_rest() -> None:
    for seed in range(100):
        here = world(seed)
        for _ in range(80):
            here.step()
            here.live(0.0)
        before = here.status
        for _ in range(3):
            here.now += timedelta(minutes=10)
            moves = here.step()
            assert not moves.act or before.get("phase") not in FINAL
        assert here.status == before


def test_machine_never_admits_a_wave_before_the_one_before_has_settled() -> None:
    for seed in range(SEEDS):
        here = world(seed)
        for _ in range(200):
            states = {each.uid: each.state for each in here.xrs}
            moves = here.step(crash=here.rng.choice(["", "", "after status"]))
            placed = here.places()
            begun = {placed[each.uid].wave for each in here.xrs if each.state != states[each.uid] and each.well}
            for wave in begun:
                unsettled = [
                    each.uid for each in here.xrs if placed[each.uid].wave < wave and states[each.uid] == "moving"
                ]
                assert not unsettled, (seed, moves.status)
            here.live(0.1)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param({"start": "WhenApproved"}, id="AwaitingApproval"),
        pytest.param({"start": "Manual"}, id="Pending"),
        pytest.param({"waves": [{"name": "all", "approval": {"count": 2}}]}, id="Waiting(Approval)"),
        pytest.param({"waves": [{"name": "all", "soak": "1h"}]}, id="Soaking"),
        pytest.param({"waves": [{"name": "all"}], "gates": [{"name": "g", "cel": "true"}]}, id="Gating"),
        pytest.param({"waves": [{"name": "all"}], "concurrency": 1}, id="Admitting"),
    ],
)
@pytest.mark.parametrize("before", ["", "Pause", "PromoteFull"])
def test_machine_aborts_in_every_state(strategy: Object, before: str) -> None:
    here = world(7, **strategy)
    here.xrs = [Xr(f"x{number}", {}) for number in range(6)]
    for _ in range(6):
        here.step()
        here.live(0.0)
    if before:
        here.act(before)
        here.step()
    if verdict_of(here.actions)[0] == "Completed":
        pytest.skip("it went through before anybody could abort")
    here.act("Abort", reason="enough")
    here.act("Promote")
    for _ in range(60):
        moves = here.step()
        assert moves.admit is None
        here.live(0.0)
    assert here.status["phase"] == "Aborted"
    assert all(each.state == "pending" for each in here.xrs)


def test_machine_rearms_a_soak_when_the_clock_jumps_and_never_shortens_it() -> None:
    here = world(1, waves=[{"name": "all", "soak": "1h"}], concurrency=50)
    here.xrs = [Xr("x", {})]
    here.step()
    here.xrs[0].state = "ready"
    here.step()
    assert here.status["wave"]["state"] == "Soaking"
    here.now += timedelta(hours=3)  # the wall clock, and nobody waited
    facts = here.facts()
    facts.clock_jumped = True
    moves = decide(here.rollout(), here.actions, facts, here.now)
    assert moves.status.wave and moves.status.wave.state == "Soaking"
    here.status = msgspec.to_builtins(moves.status)
    here.now -= timedelta(hours=2)
    moves = here.step()
    assert moves.status.wave and moves.status.wave.state == "Soaking"


def test_machine_needs_approvals_of_different_users_in_the_right_groups() -> None:
    approval = {"count": 2, "groups": ["leads"]}
    here = world(1, waves=[{"name": "all", "approval": approval}])
    here.xrs = [Xr("x", {})]
    for by, groups in (("alice", ["leads"]), ("alice", ["leads"]), ("bob", ["others"])):
        here.act("Approve", by=by, groups=groups, wave="all")
        here.step()
        assert here.status["waiting"]["for"] == "Approval"
    here.act("Approve", by="carol", groups=["leads"], wave="all")
    here.step()
    assert here.xrs[0].state == "moving"
