"""planform: a control plane for platform teams."""

__version__ = "0.1.0"
