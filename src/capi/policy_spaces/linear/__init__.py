"""Policies whose scores are linear in features, or spanned by a kernel."""
