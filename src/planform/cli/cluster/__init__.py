"""Commands that bring the controllers to a Kubernetes cluster."""
