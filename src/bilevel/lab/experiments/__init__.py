"""Experiments: typed data in TOML, run into folders, swept, and judged against a paper's claims."""
