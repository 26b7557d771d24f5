"""Long runs of every algorithm, watched for what they hold on to.

A run keeps a record of each step, by design: its history. All else that a process holds must not
grow: resident memory, Python objects, open files. Each is sampled along a run, and the mean over
the last quarter compared with that over the second; the first is for warming up.
"""
