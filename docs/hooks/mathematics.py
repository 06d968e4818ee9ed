"""Formulas become MathML while the site is built: no script, no font, nothing from elsewhere.

In a page, `$…$` within a line and `$$…$$` in lines of their own are LaTeX (pymdownx.arithmatex marks them); GitHub shows the same.
"""

import html
import re

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


def on_page_content(content: str, **_: object) -> str:
    """Called by mkdocs for every page."""
    content = BLOCK.sub(lambda found: f'<div class="formula">{_formula(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: _formula(found[1], "inline"), content)


def _formula(latex: str, display: str) -> str:
    return convert(html.unescape(latex).strip(), display=display)
