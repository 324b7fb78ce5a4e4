"""Shared code of the experiments (tests/experiments) and measurements (bench): running and timing
programs, other profilers, statistics, plain tables, and the file of results.

Python 3 and its standard library only.
"""
