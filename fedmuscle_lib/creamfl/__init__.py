"""CreamFL (ICLR 2023) and CreamFL with the Muscle loss, Table 3: a server and clients of three
kinds align on public image-caption pairs.

    from fedmuscle_lib import run
    from fedmuscle_lib.creamfl.settings import Settings

    history = run(Settings(algorithm="creamfl_muscle", seed=0))

Server and clients are parties. A kind of client is a class of ``kinds``, an algorithm one of
``algorithms``. Partitions and captioned folders are in ``fedmuscle_lib.data``.
"""
