"""Tagged envelopes round text from elsewhere, so that a model can tell data from what it is told (appendix C, 16).

Owns the escaping: nothing inside an envelope can close it, or pass for another one beginning behind it.
"""

import re


def envelope(tag: str, content: str, **attributes: str) -> str:
    """`<tag name="value">`, `content` on lines of its own, `</tag>`. The content stays readable: only what could end
    the envelope is written otherwise."""
    named = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{named}>\n{escaped(tag, content)}\n</{tag}>"


def escaped(tag: str, content: str) -> str:
    """`content` without an end tag of `tag` in it: each is written `<\\/tag`, however it was spelled."""
    return re.sub(rf"<(\s*)/(\s*)({re.escape(tag)})\b", r"<\1\\/\2\3", content, flags=re.IGNORECASE)


def _attribute(value: str) -> str:
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return " ".join(value.split())
