import sys

from upkeep.serving.counting.cells import main

sys.exit(main(sys.argv[1:]))
