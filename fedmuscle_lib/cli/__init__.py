"""The commands of ``python -m fedmuscle_lib``, one module each; ``commands`` has them all.

``form`` makes options of settings; ``options`` reads values from text; ``original`` knows the flags
of FedMuscle's original code.
"""
