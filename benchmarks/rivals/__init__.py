"""Rival methods, each a short file with a test against a closed form or a known value."""
