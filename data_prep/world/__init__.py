"""The embedded world: glyphs, images of them, a language, and the users' data sets that are
generated from these.
"""
