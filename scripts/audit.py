"""Ask the OSV database whether a version that constraints.txt pins has a known vulnerability: `make audit`.

Needs the network, and nothing else: names and versions of the pinned packages are sent to api.osv.dev. Ends with 1 where there is one.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bill_of_materials import pinned

ADDRESS = "https://api.osv.dev/v1/querybatch"


def known_vulnerabilities(pins: dict[str, str], address: str = ADDRESS, timeout: float = 60.0) -> dict[str, list[str]]:
    """Ids of advisories by `name==version`; packages without any are left out."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pins.items()]
    request = urllib.request.Request(address, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        answers: list[dict[str, Any]] = json.load(response)["results"]
    if len(answers) != len(queries):
        raise ValueError(f"{len(answers)} answers to {len(queries)} questions")
    by_package = zip(pins.items(), answers, strict=True)
    return {
        f"{name}=={version}": [entry["id"] for entry in answer["vulns"]] for (name, version), answer in by_package if answer.get("vulns")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--constraints", type=Path, default=Path(__file__).parents[1] / "constraints.txt")
    parser.add_argument("--address", default=ADDRESS)
    options = parser.parse_args()
    pins = pinned(options.constraints)
    try:
        advisories = known_vulnerabilities(pins, options.address)
    except (OSError, urllib.error.URLError, ValueError, KeyError) as error:
        print(f"the audit could not be made: {options.address} gave no answer that can be used ({error})", file=sys.stderr)
        return 2
    for package, ids in advisories.items():
        print(f"{package}: {', '.join(ids)}")
    print(f"{len(pins)} pinned packages, {len(advisories)} with known vulnerabilities")
    return 1 if advisories else 0


if __name__ == "__main__":
    sys.exit(main())
