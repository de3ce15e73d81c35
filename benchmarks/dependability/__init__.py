"""How dependable the learned policies are: the problems, the learners, the runs and the table of `benchmarks/dependable.py`."""
