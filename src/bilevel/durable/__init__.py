"""Files and runs that survive a kill: atomic files, folders, locks, sealed data, signals."""
