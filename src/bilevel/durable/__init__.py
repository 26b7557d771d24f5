"""Files and runs that survive a kill: whole files, folders, locks, sealed data, signals."""
