"""Planning: the one place where cost models meet operators.

A model speaks of sizes and an operator of bytes. Here the two are brought together: what an operator has counted is
priced (`charging`), the prices are measured on its own structures (`measuring`), and from both follow the best split of
a budget (`tune`), the best algorithm (`choose`, or `auto` where nothing is known) and the least memory (`advise`).
"""
