"""Agentic reinforcement learning in JAX: policies that act over many turns."""

__version__ = '0.1.0'
