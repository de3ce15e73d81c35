"""Policies based on nearby states of the sample: nearest neighbours and local averages."""
