"""What the experiments of tests/experiments and the measurements of bench share: running and timing
programs, other profilers, their figures, plain tables, and the file the results are kept in.

Python 3 and its standard library only.
"""
