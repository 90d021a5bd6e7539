"""``python -m d2lmini.train`` trains a network on several devices; see `d2lmini.trainer.cli`."""

import sys

from d2lmini.trainer.cli import main

if __name__ == "__main__":
    sys.exit(main())
