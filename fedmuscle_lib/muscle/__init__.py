"""The Muscle loss: pure tensor functions that need torch and nothing else of this project."""

from .loss import NORM_TOLERANCE, log_alpha, muscle_loss
from .original import compute_alpha
from .partition import MEMORY_BUDGET
from .temperature import Temperatures, lower_order_temperature, temperatures
from .wire import REPLIES, DenseReply, FactoredReply, GradientReply, gradient_reply, make_reply, paper_cost_gb, reply_nbytes

__all__ = [
    "MEMORY_BUDGET",
    "NORM_TOLERANCE",
    "REPLIES",
    "DenseReply",
    "FactoredReply",
    "GradientReply",
    "Temperatures",
    "compute_alpha",
    "gradient_reply",
    "log_alpha",
    "lower_order_temperature",
    "make_reply",
    "muscle_loss",
    "paper_cost_gb",
    "reply_nbytes",
    "temperatures",
]
