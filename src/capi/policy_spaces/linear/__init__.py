"""Policies that compare weighted sums of features, or of kernels."""
