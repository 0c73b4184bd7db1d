"""FedLoGe (ICLR 2024) and its baselines: one model for clients whose data have a long tail, as a
system of its own.

    from fedmuscle_lib import run
    from fedmuscle_lib.fedloge.settings import Settings

    history = run(Settings(algorithm="fedloge", seed=0))

A method is a file of ``methods``. Long tails and partitions are in ``fedmuscle_lib.data``.
"""
