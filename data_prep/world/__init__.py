"""The embedded world: glyphs, pictures of them, a language, and the users' data sets that are generated from these."""
