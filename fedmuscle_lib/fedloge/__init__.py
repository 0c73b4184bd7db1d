"""FedLoGe (Xiao et al., ICLR 2024) and its baselines: clients with long-tailed classes train one shared model, whose weights are averaged."""
