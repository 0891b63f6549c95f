"""Device programs that draw turns from a policy, and their host engine."""
