"""The compiled kernels of the tree engine, one module per stage: records, node, split, grow; ranks, route, walk, sift."""
