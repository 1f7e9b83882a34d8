# SPDX-License-Identifier: Apache-2.0
"""The reference of the Python package as Markdown, from its sources: nothing is imported or built. What is public and has no docstring
is a warning, and so an error of the book."""

import ast
import inspect
import logging
import re

import griffe

MODULES = ["ebb", "ebb.nn", "ebb.actions", "ebb.schedules"]
LOG = logging.getLogger("mkdocs.python_reference")
WIDE = 100


def pages(folder):
    """Markdown of each module by its name."""
    package = griffe.load("ebb", search_paths=[str(folder)], resolve_aliases=True)
    return {name: page(package if name == "ebb" else package[name.removeprefix("ebb.")], name) for name in MODULES}


def page(module, name):
    parts = [f"# {name}", markdown(docstring(module))]
    for public in exports(module):
        item = module[public]
        item = item.final_target if item.is_alias else item
        if item.is_function or item.is_class:
            parts += described(item, f"{name}.{public}", "##")
    return "\n\n".join(part for part in parts if part) + "\n"


def exports(module):
    """__all__, with the names of ebb that are loaded later, whose table is a constant of its source. Else what has no underscore."""
    if module.exports is None:
        return [name for name, item in module.members.items() if not name.startswith("_") and not item.is_alias]
    later = ast.literal_eval(str(module["_LATER"].value)) if "_LATER" in module.members else {}
    names = [name for name in module.exports if isinstance(name, str) and not name.startswith("_")]
    return sorted({*names, *later}, key=str.lower)


def described(item, name, heading):
    text = docstring(item)
    if not text:
        LOG.warning("%s has no docstring", name)
    parts = [f"{heading} {name}", signature(item, name), markdown(text)]
    if item.is_class:
        for part, member in sorted(item.all_members.items()):
            member = member.final_target if member.is_alias else member
            shown = docstring(member) if member.is_function else "property" in member.labels
            if part.startswith("_") or not shown:
                continue
            parts.append(f"#### {name.rpartition('.')[2]}.{part}")
            parts.append(signature(member, part) if member.is_function else f"*property*, `{member.annotation}`")
            parts.append(markdown(docstring(member)))
    return parts


def docstring(item):
    """Where it is an expression over constants of its module, what that gives."""
    if item.is_class and "__doc__" in item.members:
        constants = {"__builtins__": {}}
        for name, one in item.module.members.items():
            if not one.is_alias and one.is_attribute and name.isupper():
                constants[name] = eval(str(one.value), constants)
        return eval(str(item.members["__doc__"].value), constants)
    return item.docstring.value if item.docstring else ""


def parameters(item):
    made = item.all_members.get("__init__") if item.is_class else item
    found = made.parameters if made is not None and made.is_function else item.parameters if item.is_class else []
    return [one for one in found if one.name not in ("self", "cls") and not one.name.startswith("_")]


def signature(item, name):
    words, star = [], False
    for one in parameters(item):
        kind = one.kind.name if one.kind else ""
        if kind == "keyword_only" and not star:
            words.append("*")
        star = star or kind in ("keyword_only", "var_positional")
        word = {"var_positional": "*", "var_keyword": "**"}.get(kind, "") + one.name
        if one.annotation is not None:
            word += f": {one.annotation}"
        if one.default is not None and not word.startswith("*"):
            word += f" = {one.default}" if one.annotation is not None else f"={one.default}"
        words.append(word)
    back = f" -> {item.returns}" if item.is_function and item.returns is not None else ""
    line = f"{name}({', '.join(words)}){back}"
    if len(line) > WIDE and words:
        line = f"{name}(\n    " + ",\n    ".join(words) + f",\n){back}"
    return f"```python\n{line}\n```"


def markdown(text):
    """A docstring's paragraphs, its examples, and its lines "name: ..." as a list."""
    lines, example, entry = [], False, False
    for line in inspect.cleandoc(text).split("\n"):
        if line.startswith(">>>") and not example:
            lines += ["", "```pycon"]
            example = True
        if example and line == "":
            lines.append("```")
            example = False
        found = re.match(r"([a-z_*]\w*(?:,? \w+)*(?: \([^)]*\))?): (.*)", line)
        if example:
            lines.append(line)
        elif found and (entry or lines[-1:] == [""]):
            lines.append(f"- **{found.group(1)}**: {typeset(found.group(2))}")
            entry = True
        elif entry and line.startswith(" "):
            lines.append(typeset(f"  {line.strip()}"))
        else:
            lines += ["", typeset(line)] if entry and line else [typeset(line)]
            entry = False
    return "\n".join([*lines, "```"] if example else lines)


def typeset(line):
    line = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", line).replace("``", "`")
    return "`".join(piece if i % 2 else re.sub(r"[<*]", r"\\\g<0>", piece) for i, piece in enumerate(line.split("`")))
