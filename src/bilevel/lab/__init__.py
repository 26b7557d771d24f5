"""Research: tasks, experiments, sweeps, comparisons, and the paper's figures and tables."""
