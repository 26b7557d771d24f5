"""Vectors and spectra: what solvers share and nobody else needs to know."""
