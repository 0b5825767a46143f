from dovetail.cli import main

main()
