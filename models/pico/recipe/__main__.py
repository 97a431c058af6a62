"""`python FOLDER train|evaluate INPUTS OUTPUT`: how a container runs this folder, which is mounted there by itself."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # its modules are those of one package
runpy.run_module(f"recipe.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
