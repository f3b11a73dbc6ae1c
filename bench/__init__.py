"""Benchmarks: Perdure side by side with its peers. `python -m bench.write` and the others run one each."""
