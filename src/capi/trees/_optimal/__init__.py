"""Kernels that search for the tree of a given depth with the least loss.

Shapes: n rows, V features, each with its own bins, B bins in total, C columns of ``losses``: one per action, followed by a
column of ones if the rows of leaves must be counted. All losses are integers whose sums are exact in float64. The order in
which they are added or subtracted therefore does not matter, and ties are exact.

A split is (v, t): rows with codes up to t of feature v go left. The best tree of a node is the leaf, if no split costs less;
otherwise the split with the least cost, and among ties the lowest (v, t). Every way of searching finds that one.

Two facts make the search short. Costs are not negative, so the cost of the best tree of a set of rows can only grow with the
set: between two cuts a < b of a feature, no cut costs less than the left side of a plus the right side of b. And the sums of
all leaves of two levels can be read from tables over the bins of two features, which change little from one cut of a third
feature to the next.

With a minimum size of leaves, the first fact holds only for the costs without that limit; these are the ``relaxed`` costs.
"""
