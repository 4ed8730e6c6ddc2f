"""The `Client`: get, list, watch, create, update, patch, apply and delete over any kind, on either engine."""

from planform.client.protocol import Client, ObjectList, Patch, PatchType, Propagation, Watch, WatchEvent

__all__ = ["Client", "ObjectList", "Patch", "PatchType", "Propagation", "Watch", "WatchEvent"]
