"The site, for Sphinx: documents, notebooks as they ran, command line and API. `make site` builds it; nothing is run, nothing fetched."

import argparse
import sys
from pathlib import Path

import nbformat

import dedup_nb
from dedup_nb.cli import make_parser

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))  # for the reader of notebooks below

project = "dedup_nb"
author = "the authors of dedup_nb"
version = release = dedup_nb.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinxarg.ext"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "nbs/**", "recipes/*.md", "recipes/*/*.md"]
exclude_patterns = ["**/.ipynb_checkpoints", "nbs/**/runs"]
default_role = "code"  # docstrings write `name`
add_module_names = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_custom_formats = {".ipynb": "conf.read_notebook"}
nb_ipywidgets_js = {}  # no network
html_theme = "pydata_sphinx_theme"
html_title = "dedup_nb"
html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}


def setup(app) -> None:
    app.connect(
        "autodoc-process-docstring",
        lambda *given: given[-1].__setitem__(slice(None), map(_escaped, given[-1])),
    )


def _escaped(line: str) -> str:
    "A line as reStructuredText: a star is a star."
    return line.replace("*", r"\*")


def documented_parser() -> argparse.ArgumentParser:
    "The command line, with words that reStructuredText takes as they are."
    parser = make_parser()
    for each in (parser, *parser.get_default("commands").values()):
        for action in each._actions:
            action.help = _escaped(action.help) if action.help else None
    return parser


def read_notebook(text: str) -> nbformat.NotebookNode:
    "A notebook as people read it: Python, without the directives of nbdev and what papermill needs."
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type != "raw"]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = "\n".join(line for line in cell.source.split("\n") if not line.startswith("#| "))
    notebook.cells = [cell for cell in notebook.cells if cell.source.strip()]
    return notebook
