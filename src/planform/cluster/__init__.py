"""The control plane on Kubernetes: the same controllers as everywhere, in processes that share the work.

What only a cluster needs stands here: who of several replicas works, the webhook that asks our admission plugins, and
the endpoint that a kubelet and Prometheus ask.
"""

from planform.cluster.preparing import prepare
from planform.cluster.running import ClusterSettings, run_controllers
from planform.cluster.webhook import WebhookSettings

__all__ = ["ClusterSettings", "WebhookSettings", "prepare", "run_controllers"]
