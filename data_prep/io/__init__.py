"""Downloads, archives, images, the files of the ``data_dir`` layout, and a single run of a data
set's command.
"""
