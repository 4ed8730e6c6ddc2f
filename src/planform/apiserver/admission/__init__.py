"""What stands between a decoded object and the store: plugins, webhooks, policies, validation."""
