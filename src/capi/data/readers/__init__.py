"""Readers that turn tables into arrays: Arrow, column roles, encodings, episodes and actions."""
