"""Joins of two live streams over sliding windows: windows, indexes, the join itself, and what it does in need.

The join of one process is `join.WindowJoin`; it sees codes and numbers, no rows. `predicate` turns keys into codes and
intervals of codes, so that every predicate an index can serve looks the same to the join.
"""
