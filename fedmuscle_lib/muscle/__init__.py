"""The Muscle loss: pure tensor functions that need torch and nothing else of this project."""

from .loss import NORM_TOLERANCE, log_alpha, muscle_loss
from .original import compute_alpha
from .temperature import lower_order_temperature
from .wire import gradient_reply, make_reply
