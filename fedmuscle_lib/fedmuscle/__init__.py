"""FedMuscle: who the users are, what they exchange, and the algorithms that train them together."""
