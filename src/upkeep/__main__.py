from upkeep.cli import main

main()
