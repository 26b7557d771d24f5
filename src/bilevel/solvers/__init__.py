"""How points move: updates, solvers of the inner problem, solvers of linear systems."""
