"""A platform to look at: two APIs, XRs in every state, rollouts, previews, windows, hostile names and canary secrets.

The objects of rollouts and previews are written with the status they would have: what is looked at here is how they
are shown.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader

GROUP: Final = "platform.example.org"
CANARY: Final = "canary-7f3a9c-never-shown"
"""A secret value: no byte that a browser gets may hold it."""
HOSTILE: Final = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=1">',
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
    "<svg/onload=window.hacked=1>",
    "\u202egnp.exe",
)


def _xrd(kind: str, plural: str) -> Object:
    return _load(f"""
apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {{name: {plural}.{GROUP}}}
spec:
  group: {GROUP}
  names: {{kind: {kind}, plural: {plural}}}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      referenceable: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                region: {{type: string, default: eu}}
                size: {{type: integer, default: 1}}
                note: {{type: string}}
                broken: {{type: boolean}}
""")


def definitions() -> list[Object]:
    return [_xrd("Database", "databases"), _xrd("Site", "sites")]


def _load(text: str) -> Object:
    found: Object = yaml_loader.load(text)
    return found


_SITE: Final = f"""
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {{name: site}}
spec:
  compositeTypeRef: {{apiVersion: {GROUP}/v1, kind: Site}}
  mode: Pipeline
  pipeline:
    - step: render
      functionRef: {{name: function-patch-and-transform}}
      input:
        apiVersion: pt.fn.crossplane.io/v1beta1
        kind: Resources
        resources:
          - name: database
            base:
              apiVersion: {GROUP}/v1
              kind: Database
              spec: {{region: eu}}
            patches:
              - {{type: FromCompositeFieldPath, fromFieldPath: spec.size, toFieldPath: spec.size}}
          - name: web
            base:
              apiVersion: nop.crossplane.io/v1alpha1
              kind: NopResource
              spec: {{forProvider: {{conditionAfter: [{{time: 1s, conditionType: Ready, conditionStatus: "True"}}]}}}}
    - step: ready
      functionRef: {{name: function-auto-ready}}
"""


def compositions(version: int) -> list[Object]:
    """The Composition of databases in one of its versions, and that of sites."""
    names = ["instance", "volume", "backup"][: version + 1]
    resources: list[Any] = [
        {
            "name": name,
            "base": {
                "apiVersion": "nop.crossplane.io/v1alpha1",
                "kind": "NopResource",
                "metadata": {"labels": {"tier": "gold" if version > 1 else "silver"}},
                "spec": {
                    "forProvider": {
                        "conditionAfter": [{"time": "1s", "conditionType": "Ready", "conditionStatus": "True"}]
                    }
                },
            },
        }
        for name in names
    ]
    resources.append(
        {
            "name": "settings",
            "base": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "data": {"version": str(version), "endpoint": f"db.internal:{5430 + version}"},
            },
            "patches": [
                {
                    "type": "FromCompositeFieldPath",
                    "fromFieldPath": "spec.size",
                    "toFieldPath": "data.size",
                    "transforms": [{"type": "convert", "convert": {"toType": "string"}}],
                },
                {"type": "FromCompositeFieldPath", "fromFieldPath": "spec.note", "toFieldPath": "data.note"},
            ],
            "readinessChecks": [{"type": "None"}],
        }
    )
    database = _load(f"""
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {{name: database, labels: {{tier: prod}}}}
spec:
  compositeTypeRef: {{apiVersion: {GROUP}/v1, kind: Database}}
  mode: Pipeline
  pipeline:
    - step: render
      functionRef: {{name: function-patch-and-transform}}
      input: {{apiVersion: pt.fn.crossplane.io/v1beta1, kind: Resources, resources: []}}
    - step: check
      functionRef: {{name: function-cel-validation}}
      input:
        apiVersion: cel.fn.crossplane.io/v1beta1
        kind: Rules
        rules: []
    - step: ready
      functionRef: {{name: function-auto-ready}}
""")
    database["spec"]["pipeline"][0]["input"]["resources"] = resources
    del database["spec"]["pipeline"][1]  # kept as a place for a step of one's own
    return [database, _load(_SITE)]


def database(name: str, namespace: str = "default", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Database",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": spec,
    }


def site(name: str, namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Site",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def secrets() -> list[Object]:
    """Secrets with canaries wherever a Secret can hold one."""
    last = f'{{"stringData":{{"password":"{CANARY}"}}}}'
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "canary",
                "namespace": "default",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last},
            },
            "stringData": {"password": CANARY},
        }
    ]


def rollout_objects(now: datetime, before: str, after: str) -> list[Object]:
    """A policy, windows, a Rollout in its third wave and one that has completed, with their status."""

    def ago(**how: float) -> str:
        return (now - timedelta(**how)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    group = "rollout.planform.dev/v1alpha1"
    waves: list[Any] = [
        {"name": "canary", "xrs": {"matchLabels": {"planform.dev/canary": "true"}}, "max": 5, "soak": "10m"},
        {"name": "dev", "namespaces": {"matchLabels": {"env": "dev"}}},
        {
            "name": "prod",
            "percent": [10, 50, 100],
            "soak": "30m",
            "approval": {"count": 1, "groups": ["platform-leads"]},
        },
    ]
    gate = {"name": "error-rate", "verdict": "Passed", "value": "0.002", "threshold": "< 0.01", "measured": 10}
    policy = {
        "apiVersion": group,
        "kind": "RolloutPolicy",
        "metadata": {"name": "databases"},
        "spec": {"for": {"compositions": {"matchLabels": {"tier": "never"}}}, "waves": waves},
    }
    windows = [
        {
            "apiVersion": group,
            "kind": "ChangeWindow",
            "metadata": {"name": "banking-days"},
            "spec": {
                "effect": "Allow",
                "for": {"namespaces": {"matchLabels": {"tier": "gold"}}},
                "timeZone": "Europe/Zurich",
                "recurring": [{"days": ["Mon", "Tue", "Wed", "Thu"], "from": "09:00", "to": "15:00"}],
            },
        },
        {
            "apiVersion": group,
            "kind": "ChangeWindow",
            "metadata": {"name": "freeze"},
            "spec": {
                "effect": "Deny",
                "for": {"namespaces": {"matchLabels": {"tier": "gold"}}},
                "timeZone": "UTC",
                "once": {
                    "from": (now + timedelta(days=4)).strftime("%Y-%m-%dT00:00:00Z"),
                    "to": (now + timedelta(days=6)).strftime("%Y-%m-%dT00:00:00Z"),
                },
            },
        },
    ]
    running = {
        "apiVersion": group,
        "kind": "Rollout",
        "metadata": {"name": "database-r3"},
        "spec": {
            "changes": [{"composition": "database", "from": before, "fromNumber": 1, "to": after, "toNumber": 2}],
            "previewRef": {"name": "database-4f1c"},
            "strategy": {"waves": waves},
        },
        "status": {
            "phase": "Running",
            "wave": {
                "index": 2,
                "name": "prod",
                "part": 1,
                "state": "Soaking",
                "until": (now + timedelta(minutes=12, seconds=40)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "waiting": {
                "for": "Approval",
                "message": 'wave "prod" needs 1 approval of platform-leads; planform rollout approve database-r3',
            },
            "counts": {
                "xrs": 1000,
                "target": 201,
                "ready": 199,
                "inFlight": 2,
                "failed": 0,
                "putOff": 3,
                "skipped": 12,
                "pinned": 12,
            },
            "waves": [
                {
                    "name": "canary",
                    "xrs": 5,
                    "target": 5,
                    "ready": 5,
                    "failed": 0,
                    "started": ago(hours=2),
                    "finished": ago(hours=1, minutes=40),
                    "gates": [gate],
                },
                {
                    "name": "dev",
                    "xrs": 107,
                    "target": 107,
                    "ready": 107,
                    "failed": 0,
                    "started": ago(hours=1, minutes=40),
                    "finished": ago(minutes=50),
                    "gates": [gate | {"value": "0.004"}],
                },
                {"name": "prod", "xrs": 888, "target": 89, "ready": 87, "failed": 0, "started": ago(minutes=45)},
            ],
            "failing": [
                {
                    "xr": f"Database.{GROUP} team-b/ledger",
                    "since": ago(minutes=4),
                    "message": 'Synced=False: step "render": spec.size: Required value',
                }
            ],
            "history": [
                {"time": ago(hours=2), "by": "alice", "action": "Approve", "reason": "CAB-4711", "uid": "a1"},
                {
                    "time": ago(minutes=48),
                    "by": "bob",
                    "action": "Promote",
                    "reason": "canaries are quiet",
                    "uid": "a2",
                },
            ],
        },
    }
    done = {
        "apiVersion": group,
        "kind": "Rollout",
        "metadata": {"name": "database-r2"},
        "spec": {
            "changes": [{"composition": "database", "to": before, "toNumber": 1}],
            "strategy": {"waves": waves[:1]},
        },
        "status": {"phase": "Completed", "counts": {"xrs": 998, "target": 998, "ready": 998}},
    }
    return [policy, *windows, running, done]


def preview_object(after: str) -> Object:
    return {
        "apiVersion": "rollout.planform.dev/v1alpha1",
        "kind": "Preview",
        "metadata": {"name": "database-4f1c"},
        "spec": {"change": {"revision": {"composition": "database", "name": after}}},
        "status": {
            "phase": "Complete",
            "conditions": [
                {
                    "type": "Complete",
                    "status": "True",
                    "reason": "Previewed",
                    "message": "every XR was previewed",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "summary": {
                "xrs": 1000,
                "unchanged": 987,
                "changed": 11,
                "deletes": 2,
                "recreates": 0,
                "creates": 11,
                "failed": 0,
                "mended": 1,
                "drifting": 4,
                "unstable": 0,
                "notPreviewed": 1,
                "invalid": 0,
                "pinned": 12,
            },
            "classes": [
                {
                    "id": "c1",
                    "xrs": 9,
                    "change": 'ConfigMap "settings": data.endpoint  db.internal:5432 -> db.internal:5433',
                    "examples": [f"Database.{GROUP} team-a/orders", f"Database.{GROUP} team-a/users"],
                },
                {
                    "id": "c2",
                    "xrs": 2,
                    "risk": "Deletes",
                    "change": 'NopResource "volume" deleted',
                    "examples": [f"Database.{GROUP} team-b/ledger", f"Database.{GROUP} team-b/mail"],
                },
            ],
            "blast": {
                "namespaces": 7,
                "kinds": {"ConfigMap": 9, "NopResource": 13, "Deployment": 4, "Service": 2},
                "teams": {"payments": 3, "search": 6, "web": 2},
            },
            "reports": 1,
        },
    }
