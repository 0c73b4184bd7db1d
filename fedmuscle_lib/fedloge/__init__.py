"""FedLoGe (Xiao et al., ICLR 2024) and its baselines: clients with long-tailed data share one model, whose weights are averaged."""
