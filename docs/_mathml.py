"""Formulas as MathML, which browsers draw themselves: no script and no font from the network."""

from typing import Any


def _visit(self: Any, node: Any, display: str) -> None:
    from docutils import nodes  # noqa: PLC0415
    from latex2mathml.converter import convert  # noqa: PLC0415  only builds of the site have it

    self.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def inline(self: Any, node: Any) -> None:
    """Write a formula within a line."""
    _visit(self, node, "inline")


def block(self: Any, node: Any) -> None:
    """Write a formula on its own lines."""
    self.body.append('<div class="formula">')
    try:
        _visit(self, node, "block")
    finally:
        self.body.append("</div>")


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
