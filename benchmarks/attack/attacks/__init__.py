"""The attacks, one file each: found by being here. Each has NAME, SHARE and `attack`."""
