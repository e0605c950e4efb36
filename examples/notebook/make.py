#!/usr/bin/env python3
"""Makes yamabiko.ipynb from yamabiko.py, which is the one to edit; with --check only says whether they agree."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent


def cells(text: str):
    """The cells of a script in percent format."""
    kind, lines = None, []
    for line in text.splitlines() + ["# %%"]:
        if line.startswith("# %%"):
            if kind:
                yield kind, lines
            kind, lines = ("markdown" if "[markdown]" in line else "code"), []
        elif kind == "markdown":
            lines.append(line.removeprefix("#").removeprefix(" "))
        else:
            lines.append(line)


def notebook(text: str) -> str:
    """The notebook as text, without outputs."""
    made = []
    for number, (kind, lines) in enumerate(cells(text)):
        source = "\n".join(lines).strip("\n").splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


made, target = notebook((HERE / "yamabiko.py").read_text()), HERE / "yamabiko.ipynb"
if "--check" in sys.argv:
    if target.read_text() != made:
        sys.exit("yamabiko.ipynb is not what yamabiko.py says: run examples/notebook/make.py")
else:
    target.write_text(made)
