"""What was understood of a batch: `describe`, coverage and warnings."""
