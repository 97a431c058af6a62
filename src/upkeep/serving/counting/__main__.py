import os
import sys

# Counting takes tokenizers and configurations, which transformers has without PyTorch; to load that takes twice as long
# as all the rest.
sys.modules["torch"] = None  # type: ignore[assignment]
os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it would say that PyTorch is missing

from upkeep.serving.counting.cells import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
