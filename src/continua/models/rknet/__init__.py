"""Runge–Kutta networks (RKNet): configuration, network, the rows of the paper's tables, and conversion from DenseNet and CliqueNet."""
