"""Foundations of every room: errors, files, tensors from other parties, draws, registries, versions
and the look of figures.
"""
