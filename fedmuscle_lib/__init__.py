"""FedMuscle (ICLR 2026): federated multi-task learning by aligning representations with the Muscle loss."""

from fedmuscle_lib.experiment import History, run
from fedmuscle_lib.muscle import muscle_loss
from fedmuscle_lib.pool import run_all
from fedmuscle_lib.settings import Settings

__all__ = ["History", "Settings", "muscle_loss", "run", "run_all"]
