"""The software bill of materials of a wheel, as CycloneDX: what it is made of and what it asks for. hatch_build.py puts it into the wheel.

    python scripts/bill_of_materials.py      prints it

No date and no random number is in it, so the same source gives the same file.
"""

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def bill_of_materials(root: Path) -> dict[str, Any]:
    """The bill for the source at `root`; pins are those of constraints.txt, where it is there."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    pins = pinned(root / "constraints.txt")
    native = sorted((root / "src/continua/native/csrc").glob("*"))
    compiled = hashlib.sha256(b"".join(path.read_bytes() for path in native)).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": f"pkg:pypi/{project['name']}@{project['version']}",
                "name": project["name"],
                "version": project["version"],
                "purl": f"pkg:pypi/{project['name']}@{project['version']}",
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [
            {
                "type": "library",
                "name": "continua-native",
                "description": "C++ sources of the native kernels, compiled when the wheel is built",
                "hashes": [{"alg": "SHA-256", "content": compiled}],
            },
            *(required(requirement, pins) for requirement in sorted(project["dependencies"])),
        ],
    }


def required(requirement: str, pins: dict[str, str]) -> dict[str, Any]:
    """One dependency: the range that the wheel asks for, and the version that it is tested with."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    tested = pins.get(name.lower().replace("_", "-"))
    component: dict[str, Any] = {
        "type": "library",
        "scope": "required",
        "name": name,
        "properties": [{"name": "range", "value": requirement}],
    }
    return component | ({"version": tested, "purl": f"pkg:pypi/{name.lower()}@{tested}"} if tested else {})


def pinned(constraints: Path) -> dict[str, str]:
    """Versions by name, from a file of pins; empty where there is none."""
    if not constraints.is_file():
        return {}
    lines = re.findall(r"^([\w.-]+)==([^\s;#]+)", constraints.read_text("utf-8"), flags=re.M)
    return {name.lower().replace("_", "-"): version for name, version in lines}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill_of_materials(Path(__file__).parents[1]), indent=1) + "\n")
