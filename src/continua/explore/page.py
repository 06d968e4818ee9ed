"""The script that streamlit serves: `continua explore` starts it. It runs from top to bottom after every click."""

import sys

from continua.explore.frame import page

page(sys.argv[1:])
