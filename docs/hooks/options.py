"""The tables of docs/reference/options.md, made from the configuration dataclasses while the site is built."""

from continua.models import list_models, model_entry, model_options

MARK = "<!-- option tables -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for every page."""
    return markdown.replace(MARK, tables()) if MARK in markdown else markdown


def tables() -> str:
    """Models with the same options share a table: name, type, default and meaning of each."""
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for name in list_models():
        groups.setdefault(tuple(_row(option) for option in model_options(name)), []).append(name)
    parts = []
    for rows, names in groups.items():
        shown = ", ".join(f"`{name}`" for name in names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        papers = " and ".join(dict.fromkeys(model_entry(name).paper for name in names if model_entry(name).paper))
        head = ["", f"## {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""), "", f"{papers}: {shown}.", ""]
        parts += [*head, "| option | type | default | meaning |", "|---|---|---|---|"]
        parts += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(parts)


def _row(option: object) -> tuple[str, ...]:
    values = [getattr(option, key) for key in ("name", "type", "default", "help")]
    name, kind, default, text = (str(value).replace("|", "\\|").replace("\n", " ") for value in values)
    return f"`{name}`", kind, f"`{default}`" if default else "", text
