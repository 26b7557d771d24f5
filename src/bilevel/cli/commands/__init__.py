"""The commands, one file each: found by being here. Each has `register(app)`."""
