"""A served policy: protocol, batching of requests, server."""
