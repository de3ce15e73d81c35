"""Helpers for every layer: validation, randomness, threads, row arithmetic."""
