"""XRDs and ManagedResourceDefinitions: the CRDs that they mean, the roles for them, and their controllers."""
