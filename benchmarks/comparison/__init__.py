"""The comparison with other libraries on the same logs: see benchmarks/peers.py."""
