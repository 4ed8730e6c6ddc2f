"""Who asks, and what they may do: certificates, tokens, RBAC, the audit log, private files."""
