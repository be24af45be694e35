"""Arrays and compiled kernels: what the joins keep in memory, without rows, stores, clocks or budgets.

Every structure here has a fixed capacity that is chosen when it is made, says beforehand what a capacity costs
(`bytes_for`) and what fits into given bytes, and never grows by itself. Whoever makes one charges its `nbytes`.
None of them may be used by two threads at once.
"""
