"""`planform preview`: what a change would do to every live XR, asked of a control plane or found out here."""
