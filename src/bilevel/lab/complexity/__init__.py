"""The paper's Tables 1 and 2 measured: what each method pays for an ε-stationary point."""
