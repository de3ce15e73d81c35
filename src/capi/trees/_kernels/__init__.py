"""The compiled code of the engine, named by stage: records, node, split, grow; ranks, route, walk."""
