"""Device programs that change a policy: objective, gradient, update."""
