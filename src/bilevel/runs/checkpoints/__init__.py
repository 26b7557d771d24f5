"""Checkpoints: what a run that was killed resumes from.

A checkpoint is plain data with a checksum, in a folder that keeps the last two and that one
process at a time may use (`bilevel.durable`). That of `minimize` also says which problem and
algorithm it belongs to (`identity`, `keeper`).
"""
