"Settings of the documentation's pages. Nothing is executed: outputs are those kept in the notebooks."
import importlib.util
import re
import shutil
import sys
from pathlib import Path

project, author, copyright = "loflexmdm", "the loflexmdm authors", "the loflexmdm authors"
sys.path.insert(0, str(Path(__file__).parent))
root = Path(__file__).parent.parent  # of the repository: this file is copied to _docs
extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton", "sphinx.ext.mathjax", "menu"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables and formulas in outputs
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "html_image"]
myst_heading_anchors = 3
myst_update_mathjax = False
myst_url_schemes = ("http", "https", "mailto")
exclude_patterns = ["_static", ".doctrees"]

html_theme = "furo"
version = release = re.search(r'__version__ = "(.+)"', (root / "loflexmdm" / "__init__.py").read_text())[1]
html_title = f"loflexmdm {version}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_js_files = ["search.js", "site.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_theme_options = dict(top_of_page_buttons=[], sidebar_hide_name=False)
copybutton_exclude = ".linenos, .gp, .go"

# MathJax as one file on the site itself: formulas need no network
here = Path(__file__).parent
mathjax = (
    Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax" / "tex-svg-full.js"
)
(here / "_static").mkdir(exist_ok=True)
shutil.copy(mathjax, here / "_static" / "mathjax.js")
mathjax_path = "mathjax.js"
mathjax3_config = {"svg": {"fontCache": "global"}, "options": {"enableMenu": False}}
