#!/usr/bin/env python3
"""Prints tests/reference/chat_templates.json anew, for chat_template_test: what Jinja, set up as transformers
does it, makes of its templates with conversations, and of its expressions. Add new ones there."""
import json
import pathlib

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

S, U, A, V, B = ({"role": r, "content": c} for r, c in (
    ("system", "Be brief."), ("user", " Who's \"there\"?\n"), ("assistant", "It is\nme."), ("user", "Why?"),
    ("assistant", "  So.\n\n")))
REFERENCE = pathlib.Path(__file__).parent / "../tests/reference/chat_templates.json"


def raise_exception(message):
    raise jinja2.TemplateError(message)


def render(source, **variables):
    """The text; null: an error."""
    try:
        return environment.from_string(source).render(bos_token="<s>", eos_token="</s>", **variables)
    except (jinja2.TemplateError, TypeError):
        return None


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.globals["raise_exception"] = raise_exception
cases = []
reference = json.loads(REFERENCE.read_text())
for name, source in reference["templates"].items():
    for messages in ([U], [U, A], [S, U], [S, U, A, V], [S, U, A, V, B]):
        for asks in (False, True):
            cases.append({"name": name, "messages": messages, "asks": asks,
                          "text": render(source, messages=messages, add_generation_prompt=asks)})
expressions = [{"source": e["source"], "text": render("{{ " + e["source"] + " }}", messages=[U, A])}
               for e in reference["expressions"]]
print(json.dumps({"templates": reference["templates"], "cases": cases, "expressions": expressions}, indent=1))
