"""Configuration of Sphinx for the documentation site, which `tools/documentation.py` builds."""

project = "hloom"
extensions = ["myst_parser", "handbook.sphinx_links"]
html_theme = "furo"
html_title = "hloom"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
add_module_names = False
python_maximum_signature_line_length = 60
pygments_style = "default"
pygments_dark_style = "github-dark"
