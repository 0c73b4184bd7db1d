"""The bridge between the two systems: FedMuscle's users with a long tail, and FedLoGe's heads on
their features.

It alone knows both. Its runs are FedMuscle's, and what they measure are accuracies of heads by how
frequent a class is.

In the order of their imports: ``heads``, ``system`` (its runs), ``arms``, ``report`` and ``plots``.
"""
