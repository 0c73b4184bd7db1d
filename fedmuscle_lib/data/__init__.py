"""Every reader of a file of data: images, texts, labels, masks and the public sets.

Images become uint8 pixels and texts token ids, as the user's model reads them. No file is executed:
pickles go through ``data.pickles``. The readers know no task; each task reads its users' files with
them (``fedmuscle_lib.tasks``).
"""
