"""Time and memory against size: the studies, what is measured of them, and the exponents."""
