"""Backbones for images and for text, pretrained here or fetched: a module for each profile, on
modules for each architecture.
"""
