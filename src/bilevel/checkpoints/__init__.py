"""Checkpoints: what a run that was killed goes on from.

A checkpoint is plain data with a checksum (`sealed`), in a folder that keeps the last two
(`store`) and that one process at a time may use (`folder_lock`). That of `minimize` also says
which problem and algorithm it belongs to (`identity`, `keeper`).
"""
