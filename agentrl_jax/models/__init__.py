"""Decoders as pure functions over parameter pytrees."""
