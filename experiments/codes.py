"""Exit codes. Nothing is imported here: launch.py needs them before what takes seconds."""

DONE = 0
FAILED = 1  # an error of ours, with its traceback
WRONG_USE = 2
DIVERGED = 3
OUT_OF_MEMORY = 4
NOT_COMPARABLE = 5
RESUMABLE = 75  # EX_TEMPFAIL of sysexits.h: who starts it again, helps
CTRL_C = 130
