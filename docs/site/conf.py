"""Sphinx's settings of the site, whose pages ``site_pages.py`` lays down.

Everything that a page loads comes with it.
"""

project = "FedMuscle Notebooks"
extensions = ["myst_nb", "sphinx-mathjax-offline", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

nb_execution_mode = "off"  # the outputs are those that the notebooks keep
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # these scripts would come from a network
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
add_module_names = False

highlight_language = "none"  # of code whose language is not named, such as commands

html_theme = "furo"
html_title = project
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_show_sphinx = html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # a page from disk may not fetch the others
