"""Validates a list of Kubernetes objects against the API's own schema: kubernetes.py FILE VERSION..

Strict: an unknown key is an error, also where the API would ignore it.
"""

import json
import sys

import kubernetes_validate

with open(sys.argv[1]) as file:
    found = json.load(file)
assert found["kind"] == "List", found["kind"]
for version in sys.argv[2:]:
    for item in found["items"]:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            sys.exit(f"{version} {item['kind']}: {error.message}")
        print(version, item["kind"], "is valid")
    # The check of the check: a misspelt key and a wrong type are found.
    job = found["items"][-1]
    for change in ({"completionz": 3}, {"completions": "three"}):
        wrong = {**job, "spec": {**job["spec"], **change}}
        try:
            kubernetes_validate.validate(wrong, version, strict=True)
        except kubernetes_validate.ValidationError:
            continue
        sys.exit(f"{version}: {change} was not found")
