"""Summary of a batch: `describe`, coverage and warnings."""
