"`python -m loflexmdm` is `loflexmdm`."
import sys

from loflexmdm.cli import main

if __name__ == "__main__": sys.exit(main())
