"""Policies from decision trees: greedy trees, voting forests and optimal trees."""
