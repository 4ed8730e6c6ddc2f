"""planform: a control plane for platform teams."""

import os

# Before anything imports gRPC, which reads it once: its handlers around `fork` stop its threads while calls are under
# way, and calls fail. They have nothing to protect, as children come from the spawner (planform.sandbox.spawning).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__version__ = "0.1.0"
