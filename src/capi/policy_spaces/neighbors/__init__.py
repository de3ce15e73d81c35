"""Policies decided by the states of the sample: nearest neighbours and local averages."""
