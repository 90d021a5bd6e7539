"""Interrupt this process twice under the command line's handler."""

import os
import signal
import sys

from d2lmini import train

signal.signal(signal.SIGINT, train._interrupt)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGINT)
    print("goes on", file=sys.stderr)
