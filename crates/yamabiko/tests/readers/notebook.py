"""Executes a notebook with a new kernel, and prints the output of its cells."""

import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
drawn = 0
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""), end="")
        drawn += "image/png" in output.get("data", {})
print(f"{drawn} figures")
