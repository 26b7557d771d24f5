"""Vectors and spectra: what solvers share and nothing else needs to know."""
